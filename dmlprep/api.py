"""The whole public surface: what the command line does, from Python.

``check``, ``verify_placement`` and ``explain`` look at a model; ``plan_model`` says what ``prepare`` would do to it;
``plan`` and ``prepare`` make it ready, and ``tune`` finds the recipe for that; ``compare`` and ``bisect`` hold two
models against each other, ``bench`` times them, and ``make_feeds`` makes inputs for that; ``pack_kit``, ``verify_kit``
and ``choose_kit`` do so on another machine; ``package_model`` hands a model to an app, and ``verify_package`` checks
what was handed on; ``adapters`` and, on Linux, ``gpus`` list the GPUs; ``render_record``, ``write_record`` and
``write_depfile`` give records a form; ``limits`` says how much may be made of a model.

    import dmlprep

    record = dmlprep.prepare("model.onnx", recipe="@vision-fp16", pins={"batch": 1}, out="out")
    if record.exit_code == 0:
        print(record.output, [str(v.device) for v in record.verdicts])

Paths may be strings or ``pathlib.Path``. Errors are ``dmlprep.errors.DmlprepError`` and say what, where and how to fix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dmlprep.errors import OutputError, UsageError
from dmlprep.record import RunRecord, Verdict
from dmlprep.record.printable import printable

if TYPE_CHECKING:
    import numpy as np

    from dmlprep.kit import Packed
    from dmlprep.metrics import UserMetric
    from dmlprep.model.pinned import Value
    from dmlprep.package import AppReport, Package, Verified
    from dmlprep.parity.finding import Bisection
    from dmlprep.parity.sources import Made, Pictures
    from dmlprep.pipeline import Observer
    from dmlprep.pipeline.outlook import Outlook
    from dmlprep.recipe import Plan
    from dmlprep.record.speed import Bench
    from dmlprep.record.tuning import Tuned
    from dmlprep.runtime import Adapter, SessionOptions
    from dmlprep.runtime.linux.gpus import Gpu
    from dmlprep.runtime.types import OpenBy, Optimization
    from dmlprep.tuning import Proved

__all__ = [
    "Device",
    "adapters",
    "bench",
    "bisect",
    "check",
    "choose_kit",
    "compare",
    "explain",
    "gpus",
    "inspect_app",
    "limits",
    "make_feeds",
    "pack_kit",
    "package_model",
    "plan",
    "plan_model",
    "prepare",
    "render_record",
    "tune",
    "verify_kit",
    "verify_package",
    "verify_placement",
    "write_depfile",
    "write_record",
]

Device = Literal["auto", "cpu", "dml"]

Metric = Callable[[dict[str, Any], dict[str, Any]], object]
"""A measure of the user's own: outputs of the original and of the candidate on one feed -> float or (float, bool)."""


def plan(
    recipe: str | Path = "@static-fp32",
    *,
    pins: Mapping[str, Value] | None = None,
    target: str | None = None,
    settings: Sequence[str] = (),
) -> Plan:
    """Read a recipe and check all its steps and their options; no model is opened.

    Args:
        recipe: a built-in recipe (``@vision-fp16``) or a path.
        pins: sizes by dimension name (``batch``) or input and axis (``pixel_values:0``), in elements; values by input
            and a colon (``sr:``), as a number, a truth value, a text, or lists of them.
        target: a name of ``dmlprep target list`` in place of the recipe's.
        settings: overrides as on the command line (``step.fp16.keep_io=false``).

    Raises:
        RecipeError: unknown recipe, step or field, or steps that do not fit together.
        UsageError: unknown target.
    """
    from dmlprep.recipe import apply_settings, load_recipe, make_plan

    loaded = apply_settings(load_recipe(str(recipe)), list(settings))
    if target is not None:
        loaded = msgspec.structs.replace(loaded, target=target)
    return make_plan(loaded, dict(pins or {}))


def plan_model(
    path: str | Path,
    recipe: str | Path = "@static-fp32",
    *,
    pins: Mapping[str, Value] | None = None,
    target: str | None = None,
    settings: Sequence[str] = (),
) -> Outlook:
    """Say what ``prepare`` would do to a model: sizes to give, nodes that come to DirectML, fused graphs, copies.

    The steps run on a copy of the graph in memory. Nothing is written, and the model itself is not run.

    Args:
        recipe, pins, target, settings: as in ``plan``.

    Returns:
        what each step would do, and the placement before and after; ``refused`` says why where a step refuses.

    Raises:
        InputError: the model cannot be read, or is not valid.
        RecipeError, UsageError: as in ``plan``; a size does not fit the model, or the target's kernels are not known.
    """
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.model import Model
    from dmlprep.model.budget import limited
    from dmlprep.model.checking import demand_valid
    from dmlprep.pipeline.outlook import look_ahead

    made = plan(recipe, pins=pins, target=target, settings=settings)
    with limited(made.recipe.limits):
        model = Model.open(Path(path))
        demand_valid(model.ir, Path(path))
        return look_ahead(model, made)


@contextmanager
def limits(
    *, made_bytes: int | None = None, made_nodes: int | None = None, folded_elements: int | None = None
) -> Iterator[None]:
    """Let other limits hold for models that are opened inside ``with dmlprep.limits(made_bytes=8 << 30):``.

    Limits of a recipe go before these. docs/foreign-models.md says what they are and why.

    Args:
        made_bytes: bytes of constants that may be made of one model; its own weights do not count.
        made_nodes: nodes that its functions and operators may become besides its own.
        folded_elements: elements that one look at a model computes to know its shapes.

    Raises:
        UsageError: a limit is no number from 0 to 2**60.
    """
    from dmlprep.model.budget import Limits, limited

    given = {"made_bytes": made_bytes, "made_nodes": made_nodes, "folded_elements": folded_elements}
    try:
        found = msgspec.convert({name: limit for name, limit in given.items() if limit is not None}, Limits)
    except msgspec.ValidationError as error:
        raise UsageError(f"a limit is wrong: {error}", where="limits", fix="see docs/foreign-models.md") from error
    with limited(found):
        yield


def prepare(
    path: str | Path,
    *,
    out: str | Path,
    recipe: str | Path = "@static-fp32",
    pins: Mapping[str, Value] | None = None,
    target: str | None = None,
    settings: Sequence[str] = (),
    feeds: Sequence[str | Path | Mapping[str, np.ndarray[Any, Any]]] = (),
    device: Device = "auto",
    device_id: int | None = None,
    adapter: str | None = None,
    gpu: str | None = None,
    require_dml: bool = False,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    bench: bool = False,
    bench_seconds: float = 10.0,
    force: bool = False,
    observer: Observer | None = None,
) -> RunRecord:
    """Make a model ready for DirectML, prove that it still computes the same, and write it.

    Args:
        path: the model; never modified.
        out: folder for ``model.onnx`` and ``run.json``, or a path that ends in ``.onnx``.
        recipe, pins, target, settings: as in ``plan``.
        feeds: inputs to prove with: ``.npz`` files, ``NAME=file.npy``, folders, or arrays by input name; seeded ones
            are made where this is empty.
        device: ``auto`` proves on the CPU, and on DirectML where a session can run; ``dml`` demands it.
        device_id: DirectML adapter, by its number in DXGI's order.
        adapter: in its place, on Windows, its vendor (``NVIDIA``, ``AMD``, ``Intel``, ``Qualcomm``) or a part of its
            name.
        gpu: on Linux, the GPU that DirectML runs on: ``auto``, its vendor, a part of its name or its number
            (``gpus``). It demands DirectML, as ``require_dml`` does. Without it DirectML computes on the CPU.
        require_dml: as ``device="dml"``: without a DirectML session the exit code is 3 and nothing is written.
        metric: ``file.py:function`` or a function of your own, which decides in place of the tolerance
            (docs/parity.md#a-measure-of-your-own); the recipe's where there is none.
        metric_bound: the largest number of it that passes, where it does not decide itself.
        bench: time the model as it came, with its sizes overridden, and the result, once that is proved: on DirectML
            unless ``device`` is ``cpu`` or there is none. ``facts["bench"]`` holds what was found; it decides nothing.
        bench_seconds: for the timed runs of all three.
        force: replace files that are there.

    Returns:
        the record; ``exit_code`` is 0 when the result is in place, 1 when a step refused or parity failed, 3 when a
        demanded check could not run. With 1 and 3 nothing was written.

    Raises:
        UsageError: the input, the output or the recipe is wrong, ``adapter`` names no adapter or several, or ``gpu``
            several.
        CheckNotRun: there is no GPU that ``gpu`` names; the message says what is missing.
    """
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.parity import load_feeds
    from dmlprep.pipeline import Observer, PrepareRequest
    from dmlprep.pipeline import prepare as run

    session, overrides = _session(device, device_id, adapter, gpu, require_dml)
    overrides = [*settings, *overrides]
    made = plan(recipe, pins=pins, target=target, settings=overrides)
    if metric is None and (theirs := made.recipe.parity.metric):
        (observer or Observer()).told(f"the recipe names the metric {theirs}: its code runs now")
    request = PrepareRequest(
        source=Path(path),
        out=Path(out),
        plan=made,
        feeds=load_feeds(feeds),
        force=force,
        session=session,
        metric=_metric(metric, metric_bound, made),
        bench_seconds=bench_seconds if bench else None,
        observer=observer or Observer(),
    )
    return run(request)


def tune(
    path: str | Path,
    *,
    recipes: Sequence[str | Path] = ("@static-fp32", "@vision-fp16"),
    pins: Mapping[str, Value] | None = None,
    target: str | None = None,
    settings: Sequence[str] = (),
    io: Literal["keep", "half", "any"] = "keep",
    only_directml: bool = False,
    offline: bool = False,
    search_seconds: float = 60.0,
    top: int = 3,
    feeds: Sequence[str | Path | Mapping[str, np.ndarray[Any, Any]]] = (),
    device: Device = "auto",
    device_id: int | None = None,
    adapter: str | None = None,
    gpu: str | None = None,
    require_dml: bool = False,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    bench: bool = False,
    bench_seconds: float = 10.0,
    out: str | Path | None = None,
    kit: str | Path | None = None,
    key: str | Path | None = None,
    force: bool = False,
    observer: Observer | None = None,
) -> Tuned:
    """Find the recipe that suits a model best: candidates are ranked, the best are proved, and timed (docs/tune.md).

    Args:
        path: the model; never modified.
        recipes: where candidates start from; what they say of an option stays.
        pins, target: as in ``plan``; the sizes and values become part of the recipe that is found.
        settings: overrides as in ``plan``, of each recipe that has the step.
        io: graph inputs and outputs of FP16 candidates: as they are, ``half``, or both tried.
        only_directml: also operators that no CPU provider runs (GroupNorm).
        offline: rank by placement alone; nothing is proved.
        search_seconds: after these the ranking tries no more.
        top: how many candidates are proved at most; the first that passes is taken, unless ``bench`` asks for times.
        feeds, device, device_id, adapter, gpu, require_dml, metric, metric_bound: as in ``prepare``.
        bench: prove ``top`` candidates, and time those that pass on DirectML beside the input. Times choose, unless
            they are those of a device that computes on the CPU.
        bench_seconds: for the timed runs of all.
        out: file for the recipe that was found; without one nothing is written.
        kit: prove ``top`` candidates, and pack those that pass into this zip, to be timed on a Windows machine
            (``choose_kit``).
        key: as in ``pack_kit``.
        force: replace ``out`` and ``kit``.

    Returns:
        the candidates, best first, and the one that was chosen; ``recipe`` is its TOML. ``exit_code`` is 0 where one
        was found, and proved unless ``offline``; 1 where none is good; 3 where a demanded check did not run.

    Raises:
        UsageError: the input, ``out`` or a recipe is wrong, or what ``prepare`` raises it for.
        CheckNotRun: DirectML is demanded and cannot answer here, or there is no GPU that ``gpu`` names.
    """
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.files import check_output
    from dmlprep.model.saving import write_file
    from dmlprep.parity import load_feeds
    from dmlprep.pipeline import Observer
    from dmlprep.tuning import TuneRequest, base_recipes
    from dmlprep.tuning import tune as run

    for written in (out, kit):
        if written is not None:
            check_output(Path(written), force=force)
    if kit is not None and offline:
        raise UsageError("a kit holds what was proved", where="kit, offline", fix="leave one of the two out")
    session, proof = _session(device, device_id, adapter, gpu, require_dml)
    bases = base_recipes([str(recipe) for recipe in recipes], target, settings)
    if not offline and metric is None:
        for theirs in dict.fromkeys(base.parity.metric for base in bases if base.parity.metric):
            (observer or Observer()).told(f"a recipe names the metric {theirs}: its code runs now")
    found = run(
        TuneRequest(
            Path(path),
            bases,
            dict(pins or {}),
            io,
            only_directml,
            search_seconds,
            not offline,
            top,
            load_feeds(feeds),
            session,
            lambda plan: _metric(metric, metric_bound, plan),
            proof,
            bench_seconds if bench else None,
            observer or Observer(),
        ),
        None if kit is None else lambda known, proved: _pack_candidates(known, proved, Path(kit), key, force),
    )
    if out is not None and found.chosen:
        write_file(Path(out), found.recipe.encode())
    return found


def _pack_candidates(known: Tuned, proved: Sequence[Proved], out: Path, key: str | Path | None, force: bool) -> None:
    """A kit of candidates that passed."""
    import dataclasses

    from dmlprep.kit import KitRequest, pack

    first = proved[0]
    parity = first.plan.recipe.parity
    pack(
        KitRequest(
            model=first.model,
            out=out,
            reference=first.request.source,
            feeds=first.request.feeds,
            tolerance=parity.tolerance,
            sizes=parity.sizes,
            seeds=parity.seeds,
            metric=parity.metric,
            measures=parity.measures,
            key=Path(key) if key is not None else None,
            force=force,
            candidates={one.candidate.name: one.model for one in proved},
            tuned=dataclasses.replace(known, model=Path(known.model).name, bench=None, searched_seconds=0.0),
        )
    )


def choose_kit(
    result: str | Path,
    *,
    kit: str | Path,
    out: str | Path | None = None,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    key: str | Path | None = None,
    force: bool = False,
) -> Tuned:
    """Choose among the candidates of a kit of ``tune`` by what came back from a Windows machine (docs/tune.md).

    Args:
        result, kit, metric, metric_bound, key: as in ``verify_kit``.
        out: file for the recipe that was found; without one nothing is written.
        force: replace ``out``.

    Returns:
        as ``tune``: each candidate with its verdict and its time there. ``exit_code`` is 0 where one is chosen, 1 where
        the outputs of none are right, 3 where they did not run.

    Raises:
        InputError: something was damaged or edited, does not belong together, lacks the seal that ``key`` asks for, or
            the kit holds no candidates.
    """
    from dmlprep.files import check_output
    from dmlprep.kit import ChooseRequest, choose_candidate
    from dmlprep.model.saving import write_file

    if out is not None:
        check_output(Path(out), force=force)
    own = Path(key) if key is not None else None
    found = choose_candidate(ChooseRequest(Path(result), Path(kit), _metric(metric, metric_bound), own))
    if out is not None and found.chosen:
        write_file(Path(out), found.recipe.encode())
    return found


def _session(
    device: Device, device_id: int | None, adapter: str | None, gpu: str | None, require_dml: bool
) -> tuple[SessionOptions, list[str]]:
    """How DirectML's sessions are opened for a proof, and the settings of a recipe that ask for them."""
    from dmlprep.runtime import SessionOptions, choose_adapter, choose_gpu

    if require_dml and device == "cpu":
        raise UsageError(
            "a DirectML session is required on a device that has none",
            where="device cpu, require_dml",
            fix="leave one of the two out",
        )
    session = SessionOptions(device_id=choose_adapter(adapter, device_id, on=device), gpu=choose_gpu(gpu, on=device))
    if require_dml or device == "dml" or session.gpu:
        return session, ['parity.dml="require"']
    return session, ['parity.dml="off"'] if device == "cpu" else []


def compare(
    reference: str | Path,
    candidate: str | Path,
    *,
    feeds: Sequence[str | Path | Mapping[str, np.ndarray[Any, Any]]] = (),
    device: Literal["cpu", "dml"] = "cpu",
    device_id: int | None = None,
    adapter: str | None = None,
    gpu: str | None = None,
    tolerance: str = "auto",
    sizes: Mapping[str, int] | None = None,
    seeds: int = 2,
    time_limit: float = 600.0,
    open_by: OpenBy = "provider",
    measures: Mapping[str, str] | None = None,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
) -> Verdict:
    """Compare the outputs of ``candidate`` on a device with those of ``reference`` on the CPU.

    Args:
        feeds, device_id, adapter, gpu: as in ``prepare``.
        tolerance: name of a tolerance (docs/parity.md); ``auto`` is FP16's where the candidate holds FP16 weights.
        sizes: sizes for free dimensions, by name.
        seeds: how many seeded feeds where none are given.
        time_limit: seconds for one load or run.
        open_by: how DirectML is chosen, on Windows: by ``provider``, as classic applications do, or by ``device`` or
            ``policy``, as applications of Windows ML do.
        measures: outputs that are another kind than their makers tell: ``elements``, ``map``, ``classes``, ``logits``.
        metric, metric_bound: as in ``prepare``.

    Returns:
        the verdict: ``passed``, ``failed``, ``not-proven`` or ``not-run``, with the device that answered.

    Raises:
        InputError: a model or feed cannot be read, or does not fit.
        UsageError: ``adapter`` names no adapter or several, or ``gpu`` several.
        CheckNotRun: there is no GPU that ``gpu`` names.
    """
    from dmlprep.parity.yardstick import Yardstick
    from dmlprep.pipeline.proof import compare_models
    from dmlprep.runtime import SessionOptions, choose_adapter, choose_gpu

    return compare_models(
        Path(reference),
        Path(candidate),
        feeds=feeds,
        device=device,
        session=SessionOptions(
            device_id=choose_adapter(adapter, device_id, on=device),
            gpu=choose_gpu(gpu, on=device),
            time_limit=time_limit,
            open_by=open_by,
        ),
        tolerance=tolerance,
        sizes=dict(sizes or {}),
        seeds=seeds,
        yardstick=Yardstick(dict(measures or {}), "auto", _metric(metric, metric_bound)),
    )


def bench(
    *models: str | Path,
    feeds: Sequence[str | Path | Mapping[str, np.ndarray[Any, Any]]] = (),
    device: Literal["cpu", "dml"] = "cpu",
    device_id: int | None = None,
    adapter: str | None = None,
    gpu: str | None = None,
    pins: Mapping[str, int] | None = None,
    sizes: Mapping[str, int] | None = None,
    seconds: float = 10.0,
    runs: int = 10,
    time_limit: float = 600.0,
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> Bench:
    """Time models on a device, in turn and on the same inputs (docs/speed.md).

    Args:
        models: all of them are loaded at once, each in a worker of its own. One may come twice.
        feeds: as in ``prepare``; the first one is used, a seeded one where there is none.
        device_id, adapter, gpu: as in ``prepare``.
        pins: sizes that the sessions override, by dimension name or by ``input:axis``; made feeds have them too.
        sizes: sizes for free dimensions of made feeds, by name; the sessions know nothing of them.
        seconds: for the timed runs of all models together.
        runs: timed runs that each model gets at least, whatever that takes.
        time_limit: seconds for one load or run.
        progress: is told the share done (0 to 1) and what is done.

    Returns:
        times, memory, placement, and each model's time as a multiple of the first one's. A model that did not load or
        run says why in ``not_run``, and makes ``exit_code`` 3. ``render_record`` shows it.

    Raises:
        InputError: a model or feed cannot be read, or does not fit.
        UsageError: ``adapter`` names no adapter or several, ``gpu`` several, or there is no model.
        CheckNotRun: there is no such device or GPU here, or feeds cannot be made up for an input.
    """
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.runtime import SessionOptions, choose_adapter, choose_gpu
    from dmlprep.speed import BenchRequest
    from dmlprep.speed import bench as run

    return run(
        BenchRequest(
            [Path(model) for model in models],
            feeds,
            device,
            SessionOptions(
                device_id=choose_adapter(adapter, device_id, on=device),
                gpu=choose_gpu(gpu, on=device),
                time_limit=time_limit,
            ),
            dict(pins or {}),
            dict(sizes or {}),
            seconds,
            runs,
            progress,
        )
    )


def make_feeds(
    path: str | Path,
    sources: Sequence[str | Path],
    *,
    out: str | Path,
    count: int = 4,
    input: str = "",
    sizes: Mapping[str, int] | None = None,
    values: Mapping[str, np.ndarray[Any, Any]] | None = None,
    pictures: Pictures | None = None,
    rate: int | None = None,
    tokenizer: str | Path | None = None,
    force: bool = False,
) -> Made:
    """Make feeds from pictures, sound or text (docs/feeds.md), one ``.npz`` each.

    Args:
        path: the model: names, layout, sizes and types are read from it.
        sources: files, or folders of them.
        out: folder for the feeds; ``feeds=[out]`` of the other functions takes it.
        count: how many; they are taken evenly from all files, or lines of text.
        input: the input that takes them, where several could.
        sizes: sizes for free dimensions, by name or by ``input:axis``.
        values: what other inputs get; those not named get made values.
        pictures: layout, mean, deviation, scale, order of channels and fit (``dmlprep.parity.sources.Pictures``).
        rate: samples a second that the model takes; by default those of the files.
        tokenizer: the ``tokenizer.json``; by default the one beside the model or the text.
        force: replace files that are there.

    Returns:
        the files, the shapes, and which inputs got made values.

    Raises:
        InputError: the model, a file or a value cannot be read, or does not fit.
        UsageError: no input, or several, can take the files; or Pillow, soundfile or tokenizers is not installed.
        OutputError: ``out`` holds such files already, or cannot be written.
    """
    from dmlprep.parity.sources import FeedsRequest, Pictures, feeds_from

    return feeds_from(
        FeedsRequest(
            Path(path),
            [Path(source) for source in sources],
            Path(out),
            count=count,
            input=input,
            sizes=dict(sizes or {}),
            values=dict(values or {}),
            pictures=pictures or Pictures(),
            rate=rate,
            tokenizer=Path(tokenizer) if tokenizer is not None else None,
            force=force,
        )
    )


def _metric(metric: str | Metric | None, bound: float | None, plan: Plan | None = None) -> UserMetric | None:
    """The user's measure, else the recipe's, whose path is relative to the recipe."""
    from dmlprep.metrics import UserMetric, load_metric

    if metric is None and plan is not None and plan.recipe.parity.metric:
        parity, name = plan.recipe.parity, plan.recipe.name
        folder = None if name.startswith("@") else Path(name).parent
        return load_metric(parity.metric, bound if bound is not None else parity.metric_bound, folder)
    if metric is None or isinstance(metric, str):
        return load_metric(metric or "", bound)
    return UserMetric(getattr(metric, "__name__", "metric"), metric, bound)


def bisect(
    reference: str | Path,
    candidate: str | Path | None = None,
    *,
    feeds: Sequence[str | Path | Mapping[str, np.ndarray[Any, Any]]] = (),
    device: Literal["cpu", "dml"] | None = None,
    device_id: int | None = None,
    adapter: str | None = None,
    gpu: str | None = None,
    tolerance: str = "auto",
    sizes: Mapping[str, int] | None = None,
    optimization: Optimization = "all",
    unfused: bool = False,
    matrix: bool = False,
    time_limit: float = 600.0,
    out: str | Path | None = None,
    force: bool = False,
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> Bisection:
    """Find the first node at which ``candidate`` on a device and ``reference`` on the CPU differ, on the same input.

    Args:
        candidate: with one model, that model is the candidate as well: where does the device differ from the CPU?
        feeds: as in ``prepare``; the first one is used, a seeded one where there is none.
        device: where the candidate runs; ``None`` is ``dml`` for one model, ``cpu`` for two.
        device_id, adapter, gpu: as in ``prepare``.
        tolerance, sizes: as in ``compare``.
        optimization: graph optimisation level of the candidate's sessions.
        unfused: DirectML runs each node by itself.
        matrix: first try the whole candidate under each optimisation and fusion setting.
        time_limit: seconds for one load or run.
        out: folder for the model of the nodes, its inputs and expected outputs, a script and an issue text; without
            one nothing is written.
        force: replace files that are there.
        progress: is told the share done (0 to 1) and what is done.

    Returns:
        what was found: ``outcome`` is ``agree``, ``found`` or ``not-run``; ``nodes``, ``reason``, ``values`` and
        ``files`` say more.

    Raises:
        InputError: a model or feed cannot be read, or does not fit, or the models have no outputs in common.
        OutputError: ``out`` holds such files already, or cannot be written.
        UsageError: ``adapter`` names no adapter or several, or ``gpu`` several.
        CheckNotRun: feeds cannot be made up for an input, or there is no GPU that ``gpu`` names.
    """
    from dmlprep.parity import load_feeds
    from dmlprep.parity.bisect import bisect as run
    from dmlprep.runtime import SessionOptions, choose_adapter, choose_gpu

    on = device or ("dml" if candidate is None else "cpu")
    return run(
        Path(reference),
        Path(candidate if candidate is not None else reference),
        load_feeds(feeds) or None,
        device=on,
        tolerance=tolerance,
        session=SessionOptions(
            optimization=optimization,
            unfused=unfused,
            device_id=choose_adapter(adapter, device_id, on=on),
            gpu=choose_gpu(gpu, on=on),
            time_limit=time_limit,
        ),
        sizes=sizes,
        matrix=matrix,
        out=Path(out) if out is not None else None,
        force=force,
        progress=progress,
    )


def check(path: str | Path, *, target: str = "latest", fail_on_cpu: bool = False) -> RunRecord:
    """Say what of a model DirectML runs; edits and runs nothing.

    Args:
        fail_on_cpu: compute that would run on the CPU makes the exit code 1; shape arithmetic may run there.

    Returns:
        the record: findings, and under ``facts["placement"]`` the summary of where the nodes go. ``exit_code`` is 1
        where a finding is an error.

    Raises:
        InputError: the model cannot be read.
        UsageError: unknown target, or ``fail_on_cpu`` for one whose kernels are not known.
    """
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.pipeline.check import check_model
    from dmlprep.targets import find_target

    return check_model(Path(path), [find_target(target)], fail_on_cpu=fail_on_cpu)[0].record


def verify_placement(
    path: str | Path,
    *,
    target: str = "latest",
    device_id: int | None = None,
    adapter: str | None = None,
    gpu: str | None = None,
) -> RunRecord:
    """As ``check``, and ask a real DirectML session where it runs each node, and how long each takes.

    Args:
        device_id, adapter, gpu: as in ``prepare``.

    Returns:
        the record of ``check`` with the session's verdict: ``passed`` where every node is where ``check`` says. Else
        ``exit_code`` is 1.

    Raises:
        InputError: the model cannot be read.
        UsageError: unknown target, one whose kernels are not known, or ``adapter`` names no adapter, or several.
        CheckNotRun: no DirectML session can be had here.
    """
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.pipeline.check import check_model
    from dmlprep.runtime import SessionOptions, choose_adapter, choose_gpu
    from dmlprep.targets import find_target

    session = SessionOptions(device_id=choose_adapter(adapter, device_id, on="dml"), gpu=choose_gpu(gpu, on="dml"))
    return check_model(Path(path), [find_target(target)], verify=True, session=session)[0].record


def explain(what: str | Path, *, node: str | None = None, target: str = "latest") -> str:
    """Explain a finding code, or the placement of one node of a model.

    Args:
        what: the code (``DP501``, also of a quirk); with ``node``, the path of a model.
        node: the node's name, with its graph's path where it stands in a subgraph (``If_3/then_branch/Add_1``).
        target: the DirectML release that ``node`` is placed on.

    Returns:
        the page of the code, Markdown; or each rule that decides about the node, line by line.

    Raises:
        UsageError: unknown code, node or target.
        InputError: the model cannot be read.
    """
    if node is None:
        from dmlprep.report.pages import page

        return page(str(what).upper())
    path = Path(what)
    if path.suffix == "" and not path.exists():
        raise UsageError(f"{str(what)!r} is no model", where="--node", fix="dmlprep explain --node NAME model.onnx")
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.model import Model
    from dmlprep.placement.explain import explain_node
    from dmlprep.targets import find_target

    return "".join(f"{printable(line)}\n" for line in explain_node(Model.open(path), node, find_target(target)))


def pack_kit(
    path: str | Path,
    *,
    out: str | Path,
    reference: str | Path | None = None,
    feeds: Sequence[str | Path | Mapping[str, np.ndarray[Any, Any]]] = (),
    tolerance: str = "",
    sizes: Mapping[str, int] | None = None,
    seeds: int | None = None,
    session: Mapping[str, str] | None = None,
    warm_up: int = 1,
    runs: int = 5,
    time_limit: float = 1800.0,
    measures: Mapping[str, str] | None = None,
    metric: str = "",
    key: str | Path | None = None,
    force: bool = False,
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> Packed:
    """Pack a model with feeds, expected outputs and a runner, to try it on a Windows machine (docs/kit.md).

    Args:
        path: the model; its data files come along.
        out: the zip.
        reference: the original; by default the one that the ``run.json`` beside the model names, else the model itself.
        feeds: as in ``prepare``.
        tolerance, seeds: those of the ``run.json`` by default, else ``auto`` and 2.
        sizes: sizes for free dimensions, by name.
        session: session options (``device_id``, ``adapter``, ``disable_metacommands``, ``optimization``, ``dim:NAME``).
        warm_up, runs: runs of each feed before the timed ones, and timed ones.
        time_limit: seconds for everything on the other machine.
        measures: as in ``compare``.
        metric: name of your own measure (``file.py:function``), for whoever verifies; it is neither packed nor run.
        key: file of your own key, made where it is not there. It seals the kit, and never leaves you; the key for
            whoever runs the kit is written beside ``out``, its name ending in ``.run-key``.
        force: replace ``out``, and the run key.

    Raises:
        DmlprepError: it cannot be packed, or the reference does not run.
    """
    from dmlprep.kit import KitRequest, pack
    from dmlprep.parity import load_feeds

    return pack(
        KitRequest(
            model=Path(path),
            out=Path(out),
            reference=Path(reference) if reference is not None else None,
            feeds=load_feeds(feeds),
            tolerance=tolerance,
            sizes=dict(sizes or {}),
            seeds=seeds,
            session=dict(session or {}),
            warm_up=warm_up,
            runs=runs,
            time_limit=time_limit,
            measures=dict(measures or {}),
            metric=metric,
            key=Path(key) if key is not None else None,
            force=force,
            progress=progress,
        )
    )


def verify_kit(
    result: str | Path,
    *,
    kit: str | Path,
    model: str | Path | None = None,
    record: str | Path | None = None,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    key: str | Path | None = None,
) -> tuple[Verdict, Path | None]:
    """Judge what came back from a kit, and put the verdict into the record of the model.

    Args:
        result: ``result.zip``, or the ``result.json`` extracted from it with its outputs.
        kit: the ``kit.zip`` that was sent.
        model: the model that the kit should hold; the record beside it takes the verdict.
        record: another record to take the verdict.
        metric, metric_bound: as in ``prepare``. A metric that the kit names is not run unless it is given.
        key: file of your own key: the kit must have been packed with it, and the result signed with the run key.

    Returns:
        the verdict, and the record that took it.

    Raises:
        InputError: something was damaged or edited, does not belong together, or lacks the seal that ``key`` asks for.
    """
    from dmlprep.kit import VerifyRequest, verify

    return verify(
        VerifyRequest(
            Path(result),
            Path(kit),
            Path(model) if model is not None else None,
            Path(record) if record is not None else None,
            _metric(metric, metric_bound),
            Path(key) if key is not None else None,
        )
    )


def package_model(
    run: str | Path,
    *,
    out: str | Path,
    language: str,
    unproven: bool = False,
    sign: str | Path | None = None,
    force: bool = False,
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> Package:
    """Hand a prepared model to an app: the model, its contract, a loader and a sample (docs/ship-it.md).

    Args:
        run: the folder that ``prepare`` wrote.
        out: the folder of the package.
        language: of the app: ``cpp``, ``node`` or ``python``.
        unproven: package it though its run did not pass or no DirectML ran it; the contract says so.
        sign: file of a private key (Ed25519, PEM) that signs the contract, made where it is not there; its public half
            lies beside it, its name ending in ``.pub``.
        force: replace the package in ``out``.

    Raises:
        DmlprepError: the run did not pass, or the package cannot be written.
    """
    from dmlprep.package import PackageRequest, package

    key = Path(sign) if sign is not None else None
    return package(PackageRequest(Path(run), Path(out), language, unproven, key, force, progress))


def verify_package(folder: str | Path, *, key: str | Path | None = None) -> Verified:
    """Check every file of a package against its contract.

    Args:
        key: file of the public key that must have signed it.

    Raises:
        InputError: a file is missing or was changed, or the key did not sign it; the message names the file.
    """
    from dmlprep.package import verify

    return verify(Path(folder), Path(key) if key is not None else None)


def inspect_app(folder: str | Path) -> AppReport:
    """What an app's folder loads on Windows: its ONNX Runtime and DirectML, held against the packages in it.

    Runs nothing, and works on any system.

    Raises:
        InputError: it cannot be read, or has nothing that runs a model.
    """
    from dmlprep.package import inspect_app as inspect
    from dmlprep.runtime.environment import system_libraries

    return inspect(Path(folder), system_libraries())


def adapters() -> tuple[Adapter, ...]:
    """The graphics adapters that DirectML can have here.

    Returns:
        on Windows those that DXGI lists, in its order; on Linux the one of the installed runtime, lavapipe, which
        computes on the CPU; empty where there is none.
    """
    from dmlprep.runtime import adapters as found

    return found()


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that ``gpu`` takes on Linux, by Vulkan; empty where there are none, and elsewhere.

    ``dmlprep runtime status`` says what is missing.
    """
    from dmlprep.runtime import gpus as listed

    return listed()


def render_record(
    record: RunRecord | Bench | str | Path, form: Literal["text", "html", "json", "sarif"] = "text"
) -> str:
    """A record to read or to hand on.

    Args:
        record: what ``prepare``, ``check`` or ``bench`` returned, or the path of a ``run.json``.
        form: plain text as ``dmlprep report`` writes it; one HTML page that loads nothing from elsewhere; the JSON of
            ``run.json``; or the findings as SARIF 2.1.0, for code scanning.

    Raises:
        InputError: the path cannot be read, or is no record.
        UsageError: unknown form.
    """
    if isinstance(record, str | Path):
        record = RunRecord.read(Path(record))
    elif not isinstance(record, RunRecord):
        from dmlprep.speed import bench_record

        record = bench_record(record)
    if form == "text":
        from dmlprep.report.text import render_text

        return render_text(record)
    if form == "html":
        from dmlprep.report.html import render_html

        return render_html(record)
    if form == "sarif":
        from dmlprep.report.sarif import render

        return render([record]).decode()
    if form != "json":
        raise UsageError(f"unknown form {form!r}", fix="text, html, json or sarif")
    return record.to_json().decode()


def write_record(record: RunRecord, path: str | Path) -> None:
    """Write a record as JSON, whole or not at all.

    Raises:
        OutputError: the path cannot be written.
    """
    from dmlprep.model.saving import write_file

    write_file(Path(path), record.to_json())


def write_depfile(record: RunRecord, path: str | Path) -> None:
    """Write the files that the result depends on, in the form that make and ninja read.

    Raises:
        OutputError: the path cannot be written, or a file has a name that make and ninja cannot hold.
    """
    import os

    from dmlprep.model.saving import write_file

    def escaped(name: str) -> str:
        if any(character < " " for character in name):
            # A line end would begin a rule of its own.
            what = f"make and ninja know no such name: {name!r}"
            raise OutputError(what, where=str(path), fix="rename the file, or leave --depfile out")
        return name.replace("\\", "/").replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ")

    sources = " \\\n  ".join(escaped(str(Path(f).absolute())) for f in record.facts.get("files", []))
    write_file(Path(path), os.fsencode(f"{escaped(str(Path(record.output).absolute()))}: \\\n  {sources}\n"))
