"""Run ``tune``: rank candidates, prove the best as ``prepare`` proves any model, time these, and choose one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

import msgspec

from dmlprep.core._version import __version__
from dmlprep.core.errors import CheckNotRun, RecipeError, UsageError
from dmlprep.core.text.documents import toml_comment
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.budget import limited
from dmlprep.graph.model.input_watch import Unchanged
from dmlprep.graph.model.pinned import Value
from dmlprep.parity.bench import fastest
from dmlprep.pipeline.proof import missing_device
from dmlprep.pipeline.recipe import Recipe, apply_settings, load_recipe, make_plan, recipe_toml
from dmlprep.pipeline.recipe.suiting import suggest_for
from dmlprep.pipeline.tuning.proving import Proved, TuneRequest, prove
from dmlprep.pipeline.tuning.search import Row, Ways, figures, search
from dmlprep.record.tuning import PLACEMENT, TIME, Candidate, Tuned
from dmlprep.runtime.default_target import default_target


def tune(request: TuneRequest, keep: Callable[[Tuned, Sequence[Proved]], None] | None = None) -> Tuned:
    """Find the best recipe for a model: rank candidates, prove the best, time them on request, and choose one.

    Args:
        keep: called with the result so far and the candidates that passed the proof, best first, while their files
            exist; ``None``, or if none passed: not called.

    Raises:
        InputError: the model cannot be read, or was changed meanwhile.
        UsageError: a recipe, a size or the target is wrong, or the recipes are for several targets.
        CheckNotRun: DirectML is required but not available.
        ModelRefused: the model has content that dmlprep cannot preserve, or would grow beyond its limits.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    began = time.perf_counter()
    bases = [_pinned(recipe, request.pins) for recipe in request.recipes]
    if not bases or len({base.target for base in bases}) > 1:
        raise UsageError("tune needs one target", where="--recipe", fix="choose it with --target")
    target = find_target(bases[0].target)
    _check_device(request, bases[0])
    files = Unchanged(contents=False)
    with limited(bases[0].limits):
        model = files.take_model(request.source)
        before, _ = figures(model, target)
        timed = request.bench_seconds is not None or keep is not None
        ways = Ways(bases, request.io, request.only_directml, timed, request.search_seconds)
        ranking = search(model, target, ways, request.observer.ranking)
    searched = time.perf_counter() - began
    request.observer.ranked(len(ranking.rows), searched)
    best = next((row for row in ranking.rows if row.figures is not None), None)
    tuned = Tuned(
        model=str(request.source),
        target=target.name,
        before=before,
        candidates=tuple(_candidate(row, request) for row in ranking.rows),
        target_reason="" if request.recipes[0].target else default_target()[1],
        left_out=tuple(ranking.left_out),
        free=best.free if best is not None else (),
        searched_seconds=round(searched, 3),
    )
    if request.prove:
        tuned = prove(tuned, request, model, files, keep)
    else:
        files.check()
    tuned = choose(tuned, proved=request.prove)
    return replace(tuned, seconds=round(time.perf_counter() - began, 3))


def _pinned(recipe: Recipe, pins: dict[str, Value]) -> Recipe:
    """Return the recipe with ``pins`` in its step ``pin``, and with the name of an exact release as its target."""
    planned = make_plan(recipe, pins)
    tables = {step.name: {**recipe.step[step.name], **step.options} for step in planned.steps}
    return msgspec.structs.replace(recipe, step=tables, target=planned.target.name)


def _check_device(request: TuneRequest, base: Recipe) -> None:
    parity = apply_settings(base, request.proof).parity
    if request.prove and parity.dml == "require" and (reason := missing_device(request.session)):
        fix = "dmlprep runtime install (Linux), or run on Windows with a GPU; --offline ranks without a proof"
        raise CheckNotRun(f"DirectML is required but not available: {reason}", where="--device", code="DP803", fix=fix)


def _candidate(row: Row, request: TuneRequest) -> Candidate:
    name = row.variant.name
    doc = f"Found by dmlprep tune for {request.source.name}: {name}."
    reason = row.refused
    if row.figures is not None and not row.figures.runs:
        reason = "one of its nodes has no kernel in any provider"
    text = recipe_toml(msgspec.structs.replace(row.variant.recipe, doc=doc))
    return Candidate(name, text, row.figures, reason=reason, same=tuple(row.same))


def usual_recipes(path: Path) -> list[str]:
    """Return the recipes that a search for a model starts from by default: FP32, and the one that ``init`` suggests.

    If ``init`` suggests FP32, the other recipe is ``@vision-fp16``.

    Raises:
        InputError: the model cannot be read.
    """
    plain = load_recipe("@static-fp32")
    with limited(plain.limits):
        suggested, _ = suggest_for(Model.open(path))
    return [plain.name, "@vision-fp16" if suggested == plain.name else suggested]


def base_recipes(
    names: Sequence[str], target: str | None = None, settings: Mapping[str, object] | None = None
) -> list[Recipe]:
    """Read the recipes that a search starts from, and apply target and settings to them.

    Args:
        names: built-in recipes or paths, at least one.
        target: the target for all of them; ``None`` keeps each recipe's own.
        settings: values by field; a setting applies to the recipes that have its step.

    Raises:
        RecipeError: there is no such recipe, or a setting fits no recipe.
        UsageError: ``names`` is empty.
    """
    if not names:
        raise UsageError("no recipe to start from", where="--recipe", fix="omit the option, or name a recipe")
    recipes = [_with_whole_path(load_recipe(name)) for name in dict.fromkeys(names)]
    for name, value in (settings or {}).items():
        variants: list[Recipe] = []
        refused: RecipeError | None = None
        for recipe in recipes:
            try:
                variants.append(apply_settings(recipe, {name: value}))
            except RecipeError as error:
                refused = error
                variants.append(recipe)
        if refused is not None and all(one is other for one, other in zip(variants, recipes, strict=True)):
            raise refused
        recipes = variants
    return recipes if target is None else [msgspec.structs.replace(recipe, target=target) for recipe in recipes]


def _with_whole_path(recipe: Recipe) -> Recipe:
    """Return the recipe with an absolute path of its metric.

    The path is relative to the recipe's folder, and the recipe that ``tune`` finds may be written to another one.
    """
    if recipe.name.startswith("@") or not recipe.parity.metric:
        return recipe
    whole = str(Path(recipe.name).absolute().parent / recipe.parity.metric)
    return msgspec.structs.replace(recipe, parity=msgspec.structs.replace(recipe.parity, metric=whole))


def choose(tuned: Tuned, *, proved: bool) -> Tuned:
    """Return the result with the chosen candidate, its recipe and the exit code.

    The best by rank is chosen. If times of a GPU are known, the best by rank among the fastest is chosen: those that
    are not surely slower than another. If no candidate may be chosen, the result has no choice and the reason.

    Args:
        tuned: the result with its candidates, best first.
        proved: True if only candidates that passed the proof may be chosen; False: also those without a proof.
    """
    able = [one for one in tuned.candidates if one.figures is not None and one.figures.runs]
    good = [one for one in able if one.proof == "passed" or (not proved and not one.proof)]
    if not good:
        return _none(tuned)
    chosen, by = good[0], PLACEMENT
    if tuned.bench is not None and not tuned.bench.note:
        quickest = fastest(tuned.bench, [one.name for one in good])
        if quickest:
            chosen, by = next(one for one in good if one.name == quickest), TIME
    notes = "".join(f"{toml_comment(note)}\n" for note in _notes(tuned, chosen, by))
    return replace(tuned, chosen=chosen.name, chosen_by=by, recipe=notes + chosen.recipe, exit_code=0, error="")


def _notes(tuned: Tuned, one: Candidate, by: str) -> list[str]:
    numbers = one.figures
    assert numbers is not None
    on_cpu = f"nodes on the CPU: {numbers.cpu_nodes} of {numbers.nodes}"
    notes = [
        f"dmlprep {__version__} tune {PurePath(tuned.model).name}: {one.name}, by {by}",
        f"{on_cpu}; fused partitions: {numbers.partitions}; "
        f"copies between CPU and GPU: {numbers.crossings}; opset {numbers.opset}",
        f"proved on: {', '.join(one.devices)}"
        if one.proof == "passed"
        else "not proved: prepare proves what it writes",
    ]
    return [*notes, f"free sizes: {', '.join(tuned.free)}"] if tuned.free else notes


def _none(tuned: Tuned) -> Tuned:
    """Return the result without a choice, with the exit code and the reason.

    The exit code is 3 if the check of a candidate did not run or proved nothing, because it may be good; otherwise 1.
    """
    waiting = next((one for one in tuned.candidates if one.proof in ("not-run", "not-proven")), None)
    first = waiting or next((one for one in tuned.candidates if one.reason), None)
    why = f": {first.name}: {first.reason}" if first is not None else ""
    code = 3 if waiting is not None else 1
    return replace(tuned, chosen="", recipe="", exit_code=code, error=f"no candidate passed{why}")
