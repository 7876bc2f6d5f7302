"""Explain names: finding codes, steps, recipes and DirectML releases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlprep.api.devices import find_target, list_targets, target_names
from dmlprep.api.recipes import list_recipes, recipe_names, recipe_text, validate_recipe
from dmlprep.core.errors import UsageError

if TYPE_CHECKING:
    from dmlprep.directml.targets import Target
    from dmlprep.directml.targets.target import Kind


_SOURCES: tuple[Kind, ...] = ("windows", "onnxruntime", "windowsml")
"""Kinds of releases, in the order of the list."""


def explain(what: str | Path, other: str | None = None, *, operator: str | None = None) -> str:
    """Explain a finding code, a step, a recipe or a DirectML release, or compare two releases.

    >>> dmlprep.explain("DP501").splitlines()[0]
    '# DP501: no DirectML kernel of this operator version'

    Args:
        what: a code (``DP501`` or ``501``), a step (``fp16``), a recipe (``@vision-fp16``, or the path of a .toml
            file), or a release (``ort-1.30``). The words ``codes``, ``passes``, ``recipes`` and ``targets`` list them.
        other: a release to compare with the release ``what``.
        operator: show only the kernels and FP16 faults of this operator (``Conv``, ``com.microsoft::Gelu``) in a
            release, with their types.

    Returns:
        the documentation page of a code or step, as Markdown; for the rest plain text. A recipe is validated too: the
        text has each step with all its options.

    Raises:
        UsageError: a name is unknown; ``other`` or ``operator`` is set, and ``what`` is not a release; both are set; or
            ``other`` is set, and the kernels of a release are unknown.
        RecipeError: the recipe is wrong.
    """
    return "\n".join([*explanation(str(what), other, operator=operator).lines, ""])


@dataclass(frozen=True)
class Explanation:
    """An explanation in three forms.

    Attributes:
        lines: the text.
        brief: one line; for a list, one name per line.
        data: the same as builtins, for JSON.
    """

    lines: list[str]
    brief: list[str]
    data: object


def explanation(what: str, other: str | None = None, *, operator: str | None = None) -> Explanation:
    """Return an explanation in all its forms; arguments and errors are those of ``explain``."""
    if other is not None:
        if operator is not None:
            raise UsageError("an operator needs a single release", where="--op", fix=f"remove {other}")
        return _difference(what, other)
    if {what, f"ort-{what}"} & {*_release_names()}:
        return _release(find_target(what), operator)
    if operator is not None:
        raise UsageError(f"{what!r} is not a release", where="--op", fix="explain ort-1.24 --op Conv")
    return _explained(what)


def _explained(what: str) -> Explanation:
    from dmlprep.passes.catalog import CATALOG

    number = what.upper().removeprefix("DP")
    if number.isascii() and number.isdecimal():
        return _code(f"DP{number.zfill(3)}")
    if what in _LISTS:
        return _LISTS[what]()
    if what in CATALOG:
        return _step(what)
    if what.startswith("@") or what.endswith(".toml"):
        return _recipe(what)
    close = get_close_matches(what, names(), 3)
    kinds = "a code (DP501), a step (fp16), a recipe (@vision-fp16) or a release (ort-1.30)"
    meant = f"did you mean {' or '.join(map(repr, close))}?"
    fix = meant if close else f"write {kinds}; {', '.join(_LISTS)} list the names"
    raise UsageError(f"unknown name {what!r}", fix=fix)


def names() -> list[str]:
    """Return the names that ``explain`` knows, without those of quirks and files."""
    from dmlprep.passes.catalog import CATALOG
    from dmlprep.record import CODES

    return [*_LISTS, *CATALOG, *recipe_names(), *_release_names(), *CODES]


def _release_names() -> list[str]:
    return ["latest", *(name for kind in _SOURCES for name in target_names(kind))]


def _code(name: str) -> Explanation:
    from dmlprep.directml.quirks import code_row
    from dmlprep.report.pages import page

    text = page(name)
    row = code_row(name)
    more = {"title": row.title, "severity": row.severity, "remedy": row.remedy}
    return _page(text, {"code": name, **more, "page": text})


def _step(name: str) -> Explanation:
    import msgspec

    from dmlprep.passes.catalog import find_pass
    from dmlprep.report.pages import step_page

    text, step = step_page(name), find_pass(name)
    options = msgspec.to_builtins(step.options_type())
    return _page(text, {"pass": name, "summary": step.summary, "options": options, "page": text})


def _page(text: str, data: object) -> Explanation:
    lines = text.removesuffix("\n").split("\n")
    return Explanation(lines, [lines[0].lstrip("# ")], data)


def _recipe(name: str) -> Explanation:
    import msgspec

    from dmlprep.report.reference_text import recipe_lines

    text = recipe_text(name)
    plan = validate_recipe(name, text=text)
    data = {
        "recipe": plan.recipe.name,
        "doc": plan.recipe.doc,
        "target": plan.target.name,
        "target_reason": plan.target_reason,
        "steps": [
            {
                "step": step.name,
                "pass": step.pass_.name,
                "summary": step.pass_.summary,
                "options": msgspec.to_builtins(step.pass_.options),
            }
            for step in plan.steps
        ],
        "parity": msgspec.to_builtins(plan.recipe.parity),
        "toml": text,
    }
    brief = f"{plan.recipe.name}: {', '.join(step.name for step in plan.steps) or 'no step'}, for {plan.target.name}"
    return Explanation(recipe_lines(data), [brief], data)


def _release(target: Target, operator: str | None) -> Explanation:
    from dmlprep.report.reference_text import release_lines

    data = _facts(target) | _details(target, operator)
    brief = f"{target.name}: {target.title}, opset up to {target.max_opset}, IR up to {target.max_ir}"
    return Explanation(release_lines(data, with_types=operator is not None), [brief], data)


def _facts(target: Target) -> dict[str, Any]:
    return {
        "name": target.name,
        "title": target.title,
        "onnxruntime": target.ort_version,
        "package": target.package,
        "windows": target.windows,
        "served": target.served,
        "carries": target.carries,
        "directml": target.directml_version,
        "feature_level": target.feature_level,
        "max_opset": target.max_opset,
        "max_ir": target.max_ir,
        "directml_opset": target.dml_opset,
        "opset_only": target.opset_only,
    }


_QUIRK = ("id", "code", "outcome", "confidence")

_FAULT = {
    "id": "id",
    "operators": "ops",
    **{name: name for name in ("outcome", "when", "limits", "why", "confidence", "measured_on", "sources")},
}
"""Attributes of a fault, by their names in JSON."""


def _details(target: Target, operator: str | None) -> dict[str, Any]:
    """Return options, sources, kernels, quirks (faults of kernels) and FP16 faults of a release."""
    from dmlprep.directml.quirks import quirks
    from dmlprep.directml.targets.precision import precision_faults

    known = [one for one in quirks() if target.release >= (1, 0) and one.concerns(target.release)]
    faults = [] if target.opset_only else precision_faults(target)
    return {
        "options": list(target.options),
        "sources": list(target.sources),
        "kernels": {} if target.opset_only else _kernels(target, operator),
        "quirks": [{name: getattr(one, name) for name in _QUIRK} for one in known],
        "fp16_faults": [
            {key: getattr(one, name) for key, name in _FAULT.items()}
            for one in faults
            if operator is None or operator in one.ops
        ],
    }


def _kernels(target: Target, operator: str | None) -> dict[str, list[dict[str, Any]]]:
    """Return DirectML's kernels by operator; only those of ``operator`` if it is set, possibly none.

    Raises:
        UsageError: neither DirectML nor the CPU provider knows ``operator``.
    """
    table = target.tables.dml
    if operator is not None and operator not in table and operator not in target.tables.cpu:
        close = get_close_matches(operator, {**table, **target.tables.cpu}, 3)
        fix = f"did you mean {' or '.join(map(repr, close))}?" if close else "write Conv or com.microsoft::Gelu"
        raise UsageError(f"unknown operator {operator!r}", where="--op", fix=fix)
    return {
        key: [
            {
                "since_version": k.since,
                "types": {label: sorted(names) for label, names in k.types.items()},
                "constant_cpu_inputs": sorted(k.const),
                "fuses": k.fuses,
                "fused_inputs": k.fused_inputs,
                "query": k.query,
                "made_by": k.made_by,
            }
            for k in table.get(key, {}).values()
        ]
        for key in ([operator] if operator else sorted(table))
    }


def _difference(a: str, b: str) -> Explanation:
    from dmlprep.directml.targets.diff import compare_targets
    from dmlprep.report.reference_text import difference_lines

    changes = compare_targets(find_target(a), find_target(b))
    brief = "; ".join(f"{kind}: {len(texts)}" for kind, texts in changes.items() if texts) or "no differences"
    return Explanation(difference_lines(changes), [brief], {"from": a, "to": b, **changes})


def _codes() -> Explanation:
    from dmlprep.directml.quirks import codes

    rows = sorted(codes().items())
    data = {code: {"title": row.title, "severity": row.severity} for code, row in rows}
    return _list(data, (f"{code}  {row.severity:<7}  {row.title}" for code, row in rows))


def _passes() -> Explanation:
    from dmlprep.passes.catalog import CATALOG, find_pass

    data = {name: find_pass(name).summary for name in sorted(CATALOG)}
    return _list(data, (f"{name:<10}  {summary}" for name, summary in data.items()))


def _recipes() -> Explanation:
    from dmlprep.report.reference_text import list_recipes as lines

    data = {name: {"doc": recipe.doc, "steps": list(recipe.step)} for name, recipe in list_recipes().items()}
    return _list(data, lines(data))


def _releases() -> Explanation:
    from dmlprep.report.reference_text import list_releases
    from dmlprep.runtime.default_target import default_target

    rows = [_facts(one) for kind in _SOURCES for one in list_targets(kind)]
    return Explanation(list_releases(rows, find_target().name, *default_target()), [row["name"] for row in rows], rows)


def _list(data: dict[str, Any], lines: Iterable[str]) -> Explanation:
    return Explanation(list(lines), list(data), data)


_LISTS: dict[str, Callable[[], Explanation]] = {
    "codes": _codes,
    "passes": _passes,
    "recipes": _recipes,
    "targets": _releases,
}
"""Names of lists -> how to make them."""
