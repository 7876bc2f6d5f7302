"""Read recipes: ``@name`` for the built-in ones, a path for a file. Neither can shadow the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from datetime import time as dt_time
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dmlprep.core.errors import RecipeError
from dmlprep.core.files import NotToml, Unfit, check_document, meant, parse_toml, read_text, unreadable
from dmlprep.core.text.documents import toml_key, toml_value
from dmlprep.graph.model.budget import Limits
from dmlprep.passes.catalog import CATALOG, suggest, wrong_value
from dmlprep.portable.bounds import MOST_FEEDS, MOST_SECONDS, MOST_SIZE, MOST_VALUE

RECIPE_BYTES = 1 << 20
"""Largest size of a recipe file in bytes; usual ones have about a thousand."""


class ParitySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table ``[parity]``: how the result is proved.

    Attributes:
        cpu: compare on the CPU provider.
        fp16_emulation: emulate FP16 hardware if a step made the model FP16 and ``cpu`` is on. ``storage``: FP32 sums,
            stored in FP16. ``everywhere``: partial sums in FP16 too. ``both``: the first decides, the second informs.
            ``off``: none, except to predict a DirectML device that rounds toward zero.
        dml: compare on DirectML: ``auto`` if DirectML is available, ``require`` (exit code 3 if it is not), ``off``.
        tolerance: name of a tolerance, ``rel:0.005`` for a bound, or ``auto``, which chooses one by the types in the
            model (FP32, FP16, quantized) and by the device.
        seeds: number of seeded feeds if the user passes none.
        sizes: sizes for dimensions that stay free, by name or by ``input:axis``.
        time_limit: limit in seconds for each load and each run.
        measures: kinds of outputs by output name, if the operators suggest the wrong kind (``metrics.output_groups``).
        noise: measure how much the original's outputs change by rounding alone: ``auto`` if it runs within some
            seconds, ``always``, ``off``.
        metric: ``file.py:function``, the user's own measure, which decides instead of the tolerance. In a recipe file,
            the path is relative to the folder of that file.
        metric_bound: the largest value of the metric that passes, if the metric returns only a number.
    """

    cpu: bool = True
    fp16_emulation: Literal["storage", "everywhere", "both", "off"] = "storage"
    dml: Literal["auto", "require", "off"] = "auto"
    tolerance: str = "auto"
    seeds: Annotated[int, msgspec.Meta(ge=1, le=MOST_FEEDS)] = 2
    sizes: dict[str, Annotated[int, msgspec.Meta(ge=1, le=MOST_SIZE)]] = {}
    time_limit: Annotated[float, msgspec.Meta(gt=0, le=MOST_SECONDS)] = 600.0
    measures: dict[str, Literal["elements", "map", "classes", "logits", "angle"]] = {}
    noise: Literal["auto", "always", "off"] = "auto"
    metric: str = ""
    metric_bound: Annotated[float, msgspec.Meta(ge=-MOST_VALUE, le=MOST_VALUE)] | None = None


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A recipe as it is written in its TOML file.

    Attributes:
        doc: a line that describes the recipe.
        target: name of a target; empty for the default target.
        format: version of the format.
        name: ``@vision-fp16``, or the path of the file; not part of the file.
        step: options of the steps, in the order they run. The key is the name of the pass, unless ``use`` in the
            options names another one.
    """

    doc: str
    format: Literal[1] = 1
    name: str = ""
    target: str = ""
    step: dict[str, dict[str, Any]] = {}
    parity: ParitySettings = ParitySettings()
    limits: Limits = Limits()


def _builtin_folder() -> Traversable:
    """Return the folder of built-in recipes: a folder of the installed package, or ``recipes/`` in a checkout."""
    inside = resources.files("dmlprep.pipeline.recipe") / "builtin"
    if inside.is_dir():
        return inside
    return Path(__file__).resolve().parents[3] / "recipes"


def builtin_names() -> list[str]:
    """Return the names of the built-in recipes, with ``@`` as the first character."""
    return sorted("@" + entry.name[:-5] for entry in _builtin_folder().iterdir() if entry.name.endswith(".toml"))


def load_recipe(name: str) -> Recipe:
    """Read a built-in recipe (``@vision-fp16``) or a recipe file.

    Raises:
        RecipeError: no such recipe, not readable, not TOML, an unknown or ill-typed field, or an empty ``doc``; the
            message names the field.
    """
    return parse_recipe(recipe_text(name), name)


def recipe_text(name: str) -> str:
    """Return the TOML text of a built-in recipe or a recipe file, as it is written.

    Raises:
        RecipeError: there is no such recipe, it cannot be read or is larger than 1 MiB, or it is neither UTF-8 nor
            UTF-16 with a byte-order mark.
    """
    if name.startswith("@"):
        if name not in builtin_names():
            raise RecipeError(f"no built-in recipe {name}", fix=suggest(name, builtin_names()), code="DP902")
        return str((_builtin_folder() / f"{name[1:]}.toml").read_text(encoding="utf-8"))
    path = Path(name)
    try:
        return read_text(path, RECIPE_BYTES)
    except FileNotFoundError as error:
        fix = meant(path, suggest("@" + name, builtin_names()) if path.name == name else "check the path")
        raise RecipeError("no such recipe file", where=name, fix=fix, code="DP902") from error
    except OSError as error:
        unread = unreadable(error, path)
        raise RecipeError(unread.what, where=name, fix=unread.fix, code="DP902") from error
    except Unfit as error:
        raise RecipeError(str(error), where=name, fix=error.fix, code="DP902") from error


def parse_recipe(text: str, name: str) -> Recipe:
    """Parse the TOML text of a recipe; ``name`` is the name of the recipe, also in errors.

    Raises:
        RecipeError: not TOML, an unknown or ill-typed field, or an empty ``doc``.
    """
    try:
        data = parse_toml(text)
    except Unfit as error:
        raise RecipeError(str(error), where=name, fix=error.fix, code="DP902") from error
    return _convert(data, name)


def _convert(data: dict[str, Any], name: str) -> Recipe:
    try:
        check_document(data)
    except Unfit as error:
        raise RecipeError(str(error), where=name, fix=error.fix, code="DP901") from error
    tables: list[tuple[str, object, type[msgspec.Struct]]] = [
        ("", data, Recipe),
        ("parity.", data.get("parity", {}), ParitySettings),
        ("limits.", data.get("limits", {}), Limits),
    ]
    for where, table, known in tables:
        fields = [field for field in known.__struct_fields__ if field != "name"]
        for key in table if isinstance(table, dict) else ():
            if key not in fields:
                raise RecipeError(f"unknown field '{where}{key}'", where=name, fix=suggest(key, fields), code="DP901")
    try:
        recipe = msgspec.convert({**data, "name": name}, Recipe)
    except msgspec.ValidationError as error:
        text, fix = wrong_value(error, ParitySettings, "parity.")  # no field of [limits] has words as values
        raise RecipeError(text, where=name, fix=fix, code="DP901") from error
    if not recipe.doc.strip():
        fix = "describe the recipe in one line"
        raise RecipeError("field 'doc' is empty", where=name, fix=fix, code="DP901")
    return recipe


def read_settings(texts: Iterable[str]) -> dict[str, object]:
    """Parse texts ``FIELD=VALUE`` and return the values by field. A value is TOML; a bare word is a string.

    If a field occurs several times, the last value counts.

    Raises:
        RecipeError: a text has another form, or ``read_value`` refuses its value.
    """
    values: dict[str, object] = {}
    for text in texts:
        field, equals, value = text.partition("=")
        if not equals or not all(field.strip().split(".")):
            fix = "e.g. step.fp16.keep_io=false"
            raise RecipeError("a setting is FIELD=VALUE", where=f"--set {text}", fix=fix, code="DP901")
        values.pop(field.strip(), None)  # the last one of a field counts, and comes last
        values[field.strip()] = read_value(value.strip())
    return values


def apply_settings(recipe: Recipe, settings: Mapping[str, object]) -> Recipe:
    """Return the recipe with some fields overridden: ``step.fp16.keep_io``, ``parity.seeds``, ``target``.

    Raises:
        RecipeError: a setting names a step or field that the recipe does not have, or its value does not fit.
    """
    values: object = settings
    if not isinstance(values, Mapping) or not all(isinstance(field, str) for field in values):
        fix = 'settings={"parity.seeds": 4}'
        raise RecipeError("settings must be a dict from field to value", where="settings", fix=fix, code="DP901")
    data = msgspec.to_builtins(recipe)
    data.pop("name")
    for field, value in settings.items():
        keys = field.split(".")
        if (problem := _misplaced(recipe, data, keys, value)) is not None:
            what, fix = problem
            raise RecipeError(what, where=f"--set {field}", fix=fix, code="DP901")
        at = data
        for key in keys[:-1]:
            at = at.setdefault(key, {})
            if not isinstance(at, dict):
                what, fix = f"{key!r} has no fields", "see docs/recipes.md"
                raise RecipeError(what, where=f"--set {field}", fix=fix, code="DP901")
        at[keys[-1]] = value
    return _convert(data, recipe.name)


def _misplaced(recipe: Recipe, data: Mapping[str, object], keys: list[str], value: object) -> tuple[str, str] | None:
    """Return why a setting does not name a field of a step that the recipe has, and how to fix this.

    ``None`` if it does, or if it is outside the steps: ``_convert`` checks these fields.

    Args:
        data: the recipe as nested dictionaries.
        keys: the parts of the field's name (``step``, ``fp16``, ``keep_io``).
        value: the value of the setting, for the text of the fix.
    """
    if keys[0] == "step":
        if len(keys) > 1 and keys[1] not in recipe.step:
            return f"the recipe has no step {keys[1]!r}", suggest(keys[1], list(recipe.step))
        if len(keys) <= 2:
            return "name a field of the step", "e.g. step.fp16.keep_io=false"
    if keys[0] not in data and len(keys) > 1 and keys[0] in CATALOG:
        fix = f"{recipe.name} has no step {keys[0]!r}: {suggest(keys[0], list(recipe.step))}"
        if keys[0] in recipe.step:
            fix = f"write --set {'.'.join(['step', *keys])}={toml_value(value)}"
        return f"{keys[0]} is a step: its fields are under step", fix
    return None


def read_value(text: str) -> Any:
    """Parse a TOML value and return it; text that is not TOML, such as a bare word, is returned as a string.

    Raises:
        RecipeError: the text has more than the value, or the value is nested too deep, contains a date or time, or has
            a whole number of more than 64 bits.
    """
    try:
        parsed = parse_toml(f"v = {text}")
    except NotToml:
        return text
    except Unfit as error:
        raise RecipeError(str(error), where=f"the value {text[:40]}...", fix=error.fix, code="DP901") from error
    if len(parsed) > 1 or _holds_time(parsed):
        fix = "write a number, a truth value, a string, or a list or table of them"
        raise RecipeError("this is not a value", where=f"the value {text[:40]}", fix=fix, code="DP901")
    return parsed["v"]


def _holds_time(value: object) -> bool:
    """Return True if a TOML value contains a date or a time, which no field accepts."""
    if isinstance(value, dict):
        return any(map(_holds_time, value.values()))
    return any(map(_holds_time, value)) if isinstance(value, list) else isinstance(value, date | datetime | dt_time)


def recipe_toml(recipe: Recipe, *notes: str) -> str:
    """Return a recipe as TOML text that begins with ``notes`` as comments.

    Its name and format, and fields of ``[parity]`` and ``[limits]`` with default values, are left out.
    """
    head: dict[str, object] = {"doc": recipe.doc, **({"target": recipe.target} if recipe.target else {})}
    lines = [*(f"# {' '.join(note.split())}" for note in notes), *_rows(head)]
    for name, options in recipe.step.items():
        lines += ["", f"[step.{toml_key(name)}]", *_rows(options)]
    for name in ("parity", "limits"):
        table = _set(getattr(recipe, name))
        lines += ["", f"[{name}]", *_rows(table)] if table else []
    return "\n".join(lines) + "\n"


def _rows(table: dict[str, object]) -> list[str]:
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items()]


def _set(table: msgspec.Struct) -> dict[str, object]:
    """Return the fields of a table that differ from their defaults."""
    default = type(table)()
    every = msgspec.to_builtins(table)
    return {name: value for name, value in every.items() if getattr(table, name) != getattr(default, name)}
