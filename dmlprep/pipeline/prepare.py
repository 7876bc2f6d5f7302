"""A whole run of ``prepare``: open, check, run the steps, save to a staging folder, prove, move the result into place.

The result is written to a hidden folder next to its destination, and replaces existing files atomically. Model, data
file and record are then of one run, or all are unchanged (``core.files.exchange``). The next run removes the remains of
a killed one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from dmlprep.core._version import __version__
from dmlprep.core.errors import CheckNotRun, InternalError, ModelRefused, OutputError, ToolFailed, UsageError
from dmlprep.core.files import FileSet, check_path
from dmlprep.core.files.outputs import check_replaceable
from dmlprep.core.files.staging import PREFIX, clear_staging, staging_folder
from dmlprep.core.files.writing import plain_errors
from dmlprep.directml.vram import over_budget, vram_bytes
from dmlprep.graph.model import EXTERNAL_OVER, Frozen, Model
from dmlprep.graph.model.budget import limited
from dmlprep.graph.model.checking import check, demand_valid
from dmlprep.graph.model.input_watch import Unchanged, data_files
from dmlprep.graph.model.opening import check_name
from dmlprep.graph.model.saving import Saved, write_sharing
from dmlprep.graph.model.shared_data import SharedData
from dmlprep.graph.rewriting.unread import put_unread, take_unread
from dmlprep.metrics import ProofRules, UserMetric, holds_fp16
from dmlprep.parity import RunFeeds, feeds_of
from dmlprep.parity.judging import JudgingOptions
from dmlprep.pipeline.exit_code import DML_HERE, judge
from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.opportunities import PrepareCommand, of_result, safer
from dmlprep.pipeline.options import PrepareOptions
from dmlprep.pipeline.placing import context_for, note_after, note_before
from dmlprep.pipeline.proof import Proof, missing_device
from dmlprep.pipeline.recipe import Plan
from dmlprep.pipeline.runner import LARGE, CpuRunner
from dmlprep.pipeline.transaction import Transactions
from dmlprep.pipeline.verdict_cache import KeptVerdicts, verdict_folder
from dmlprep.portable.arrays import Array
from dmlprep.record import Check, Finding, RunError, RunRecord, StepRecord, Verdict
from dmlprep.record.buckets import BucketFacts
from dmlprep.record.findings import finding
from dmlprep.record.origin import origin
from dmlprep.record.run_record import RunFacts
from dmlprep.record.speed import Bench
from dmlprep.runtime import SessionHost, SessionOptions, cpu_host

if TYPE_CHECKING:
    from dmlprep.passes.precision import Rounding


@dataclass(frozen=True)
class Sharing:
    """The part of one bucket (one set of sizes) in a run for several: its name, its sizes, and the common data file."""

    name: str
    sizes: Mapping[str, int]
    data: SharedData


@dataclass(frozen=True)
class PrepareRequest:
    """The request of one run of ``prepare``.

    Attributes:
        source: the model to prepare; never modified.
        out: folder of the result (``model.onnx``, ``run.json``), or a path that ends in ``.onnx``.
        options: the user's options; ``plan``, ``feeds``, ``session`` and ``metric`` are derived from them.
        feeds: the user's feeds; if empty, dmlprep generates seeded ones.
        session: options of the sessions on DirectML; ``None``: the defaults.
        command_line: the user's command, for the record; empty for a call from Python.
        read: files and folders of feeds and metric, which the result depends on in addition to model and recipe.
        sharing: set if this is one of several buckets.
    """

    source: Path
    out: Path
    plan: Plan
    options: PrepareOptions = field(default_factory=PrepareOptions)
    feeds: Sequence[dict[str, Array]] = ()
    session: SessionOptions | None = None
    metric: UserMetric | None = None
    command_line: str = ""
    read: Sequence[Path] = ()
    sharing: Sharing | None = None
    observer: Observer = field(default_factory=Observer)

    @cached_property
    def vram(self) -> int | None:
        """The memory of the device in bytes: a result that needs more is refused; ``None``: no limit is set.

        Raises:
            UsageError: the option ``vram`` is not a size.
        """
        return None if self.options.vram is None else vram_bytes(self.options.vram)

    @property
    def on_target(self) -> SessionOptions:
        """``session``, on the target's release of ONNX Runtime if several are installed."""
        return replace(self.session or SessionOptions(), release=self.plan.target.ort_version)

    @property
    def model_path(self) -> Path:
        """The final path of the prepared model."""
        return self.out if self.out.suffix == ".onnx" else self.out / "model.onnx"

    @property
    def record_path(self) -> Path:
        """The final path of the record of the run."""
        return self.out.with_suffix(".run.json") if self.out.suffix == ".onnx" else self.out / "run.json"

    @property
    def files(self) -> FileSet:
        """All files of the result, which are replaced together."""
        model = self.model_path
        return FileSet(model.parent, model.name, (f"{model.name}.data", self.record_path.name))


class Result(NamedTuple):
    """The proved result of a run: its files in the staging folder (``saved``), and the model opened from them."""

    saved: Saved
    model: Model


def prepare(request: PrepareRequest) -> RunRecord:
    """Prepare a model, prove the result, and write it.

    Returns:
        the record. With ``exit_code`` 0 the result is in place. With 1 (refused, parity failed, or a known fault of
            DirectML) or 3 (a required check did not run or proved nothing) nothing was written; ``error`` has the
            reason.

    Raises:
        UsageError: the input, a feed, the output or the recipe is wrong, or the input was changed meanwhile.
        InternalError: a bug of dmlprep, such as a pass that broke its contract.
    """
    check_out(request)
    with staging_folder(request.model_path.parent) as staging:
        record, result = prepare_aside(request, staging / request.model_path.name)
        if result is not None:
            _appear(result.saved, record, staging, request)
    return record


def prepare_aside(
    request: PrepareRequest, target: Path, opened: tuple[Model, Unchanged] | None = None
) -> tuple[RunRecord, Result | None]:
    """Prepare a model like ``prepare``, but write the result to a staging file; the caller moves it into place.

    The final path in ``request.out`` is neither checked nor written.

    Args:
        target: file to write the result to, in a folder of the caller.
        opened: the model, which the steps change in place, and the watcher of its files; ``None``: the file
            ``request.source`` is opened.

    Returns:
        the record, which is not written; and the result, ``None`` if ``exit_code`` is not 0.
    """
    began = time.perf_counter()
    record = RunRecord(
        command="prepare",
        input=str(request.source),
        version=__version__,
        target=request.plan.target.name,
        target_reason=request.plan.target_reason,
        recipe=request.plan.recipe.name,
        options=request.options.chosen,
        facts=RunFacts(origin=origin(request.command_line)),
    )
    result = None
    model, source = opened or (None, Unchanged())
    try:
        with limited(request.plan.recipe.limits):
            model = model or source.take_model(request.source)
            result = _run(model, request, target, record, source)
    except (ModelRefused, ToolFailed, CheckNotRun) as refused:
        record.exit_code = refused.exit_code
        record.error = RunError.of(refused)
        if (facts := record.facts).placement_after is None and facts.memory is not None and not facts.memory.known:
            facts.memory = None  # estimated for the original model, whose sizes are free although the user fixed them
        if refused.code:  # without one, the error alone has the reason
            what, where, fix = refused.what, refused.where, refused.fix
            record.findings.append(finding(refused.code, what, node=where, severity="error", remedy=fix))
    except (InternalError, OutputError):
        source.check()  # neither a step nor a full disk is to blame for weights that changed between two reads
        raise
    # The last check before the result appears, and before a record describes a model that has changed.
    source.check()
    record.output = str(request.model_path) if result is not None else ""
    record.seconds = round(time.perf_counter() - began, 3)
    return record, result


def _run(model: Model, request: PrepareRequest, target: Path, record: RunRecord, source: Unchanged) -> Result | None:
    recipe = request.plan.recipe.name
    recipes = [] if recipe.startswith("@") else [recipe]
    source.take(map(Path, recipes))
    record.facts.digests = source.digests
    record.input_sha256 = source.digests[str(request.source)]
    record.opset_before, record.ir_before = _versions(model)
    record.findings += model.notes
    # Files that the result depends on.
    record.facts.files = list(map(str, (request.source, *data_files(model), *recipes, *request.read)))
    demand_valid(model.ir, request.source, model.opened)
    if request.metric is not None and request.metric.named_by:
        text = f"{request.metric.named_by} names the metric {request.metric.name}, whose code judges this model"
        record.findings.append(finding("DP712", text))
    _check_device(request, record)
    if record.exit_code:
        return None
    # One worker runs all models of the steps and the proof on the CPU: starting one costs 0.4 s.
    with cpu_host() as host:
        host.begin()
        # The folder of the result exists before the steps: a worker may read only existing paths.
        host.may_read([request.source, *data_files(model), target.parent])
        # Before the steps, which take longer. The steps and the proof use the same feeds.
        feeds = _feeds(model.copy(model.opened), request)
        before = note_before(record, model, request.plan.target, request.vram)
        frozen = _run_steps(model, request, feeds, record, host)
        record.opset_after, record.ir_after = _versions(model)
        changed = any(step.outcome == "changed" for step in record.steps)
        placed = note_after(record, model, before, frozen, changed=changed, vram=request.vram)
        _check_memory(request, record)
        # Otherwise the last step that changed it was checked in the same way.
        if not changed and (wrong := check(model.ir, frozen=frozen)):
            what = f"the prepared model would not be valid: {wrong}"
            fix = "export the model again: its types or shapes contradict each other"
            raise ModelRefused(what, where=str(request.source), code="DP003", fix=fix)
        command = PrepareCommand(request.source, request.out, request.model_path, request.plan, request.options)
        offers = of_result(model, placed, command, record) if request.sharing is None else []
        saved = _save(model, frozen, request, target, record)
        result = _prove(saved, request, feeds, record, host, placed.faults)
        if result is not None and request.sharing is None:
            record.facts.opportunities = [*offers, *safer(command, record)]
        return result


def _check_device(request: PrepareRequest, record: RunRecord) -> None:
    """If DirectML is required but not available, add the verdict to the record and set its exit code and error."""
    if request.plan.recipe.parity.dml == "require" and (reason := missing_device(request.on_target)):
        check = Check("parity", "dml")
        why = finding("DP803", f"{check} did not run: {reason}", remedy=DML_HERE)
        record.verdicts.append(Verdict(check, "not-run", reason, findings=[why]))
        judge(record, request.plan)


def _check_memory(request: PrepareRequest, record: RunRecord) -> None:
    """Raise an error if the user set the memory of the device and the result does not surely fit into it.

    Raises:
        ModelRefused: DP530, a session needs more memory.
        CheckNotRun: DP531, the memory that a session needs is not known.
    """
    memory = record.facts.memory
    wrong = over_budget(memory, request.vram) if memory is not None and request.vram is not None else None
    if wrong is None:
        return
    kind = ModelRefused if wrong.code == "DP530" else CheckNotRun
    raise kind(wrong.message, where=str(request.source), fix=wrong.remedy, code=wrong.code)


def check_out(request: PrepareRequest) -> None:
    """Check that the result can be written, before the work begins; remove remains of killed runs.

    Raises:
        OutputError: a path of the result is the input, is a folder, exists without ``force``, or cannot be written.
    """
    check_name(request.out, OutputError)
    check_path(request.model_path, aside=PurePath(f"{PREFIX}12345678abcd") / f"{request.model_path.name}.data")
    check_path(request.record_path)
    request.files.recover()
    source, model = request.source, request.model_path
    if os.path.exists(source) and os.path.exists(model) and os.path.samefile(source, model):
        what = "this is the input model, and input is never overwritten"
        raise OutputError(what, where=str(model), fix="choose another folder with -o")
    if request.out.suffix != ".onnx" and os.path.exists(request.out) and not os.path.isdir(request.out):
        raise OutputError("a file of this name exists", where=str(request.out), fix="pass a folder or an .onnx file")
    for path in (request.files.folder / name for name in (request.files.head, *request.files.others)):
        if os.path.isdir(path):
            raise OutputError("this is a folder", where=str(path), fix="choose another name with -o")
        if os.path.lexists(path) and not request.options.force:
            raise OutputError("the file exists", where=str(path), fix="pass --force to replace it")
        if os.path.exists(path):
            check_replaceable(path)
    clear_staging(request.model_path.parent)
    with staging_folder(request.model_path.parent):
        pass


def _versions(model: Model) -> tuple[dict[str, int], int]:
    numbers = model.statistics()
    return numbers.opsets, numbers.ir_version


def _feeds(original: Model, request: PrepareRequest) -> RunFeeds:
    plan, sizes, framing = request.plan, request.plan.recipe.parity.sizes, request.plan.framing
    rough = "fp16" in plan.facts or holds_fp16(original)
    return feeds_of(original, request.feeds, sizes, values=plan.values, rough=rough, framing=framing)


def _run_steps(
    model: Model, request: PrepareRequest, feeds: RunFeeds, record: RunRecord, host: SessionHost
) -> Frozen | None:
    """Run the steps of the plan on ``model`` in place, and add their records to ``record``.

    Returns:
        the serialized model after the steps; ``None`` if it is not known.
    """
    plan = request.plan
    parity = plan.recipe.parity
    rules = ProofRules(parity.measures, parity.tolerance, request.metric)
    drop = any(getattr(step.pass_.options, "drop_unread", False) for step in plan.steps)
    unread = take_unread(model.ir)
    steps = Transactions(model, None if unread else model.opened)
    with CpuRunner(feeds.of, parity.time_limit, host, None if feeds.user_count else feeds.other_sizes) as runner:
        for index, step in enumerate(plan.steps, 1):
            request.observer.step_started(step.name, index, len(plan.steps))
            context = context_for(plan.target, runner=runner, rules=rules, progress=request.observer.step_progress)
            done = steps.run(step.name, step.pass_, context, step.options)
            if done.bytes_after > LARGE:  # the next step often runs the same small model
                runner.release()
            record.steps.append(done)
            request.observer.step_finished(done)
            if parity.cpu or parity.dml != "off":
                _refuse_nothing(model, done)
    if unread:
        names = [v.name or "" for v in unread]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        nbytes = sum(v.const_value.nbytes for v in unread if v.const_value is not None)
        simplify = next((step.name for step in plan.steps if step.pass_.name == "simplify"), "")
        removes = f"; --set step.{simplify}.drop_unread=true removes them" if simplify else ""
        fate = "removed" if drop else f"kept at the end of the list{removes}"
        text = f"no node reads {', '.join(names[:3])}{more} ({nbytes} bytes): {fate}"
        record.findings.append(finding("DP307", text, removed=drop, bytes=nbytes))
        if not drop:
            put_unread(model.ir, unread)
            return None
    return steps.frozen


def _refuse_nothing(model: Model, done: StepRecord) -> None:
    """Raise an error if a step fixed a size of 0 and all outputs of the model are empty then.

    A size of 0 is valid if an output is not empty, such as that of an empty cache.

    Raises:
        UsageError: DP210, all outputs are empty.
    """
    zeros = ", ".join(name for name, size in done.facts.pinned.items() if size == 0)
    outputs = model.ir.graph.outputs
    if zeros and outputs and all(value.shape is not None and 0 in value.shape for value in outputs):
        what = f"with size 0 for {zeros} every output is empty"
        raise UsageError(what, where=f"step {done.step}", code="DP210", fix="pass a size of at least 1")


def _save(model: Model, frozen: Frozen | None, request: PrepareRequest, target: Path, record: RunRecord) -> Saved:
    total = model.statistics().nbytes
    done = 0

    def progress(count: int) -> None:
        nonlocal done
        done += count
        request.observer.saving(done, total)

    try:
        if (sharing := request.sharing) is not None:
            data = sharing.data
            saved = write_sharing(model.ir, target, data, progress=progress)
            nbytes = data.written + data.shared
            file = data.path.name if nbytes else ""
            record.facts.bucket = BucketFacts(sharing.name, dict(sharing.sizes), file, nbytes, data.shared)
        else:
            external_over = -1 if request.options.external_data else EXTERNAL_OVER
            saved = model.save(target, external_over=external_over, progress=progress, frozen=frozen)
    except OutputError as error:
        error.where = str(request.model_path)  # the user does not know the staging folder
        raise
    if done < total:  # tensors that several names share are written once
        request.observer.saving(total, total)
    record.output_sha256 = saved.sha256
    return saved


def _prove(
    saved: Saved,
    request: PrepareRequest,
    feeds: RunFeeds,
    record: RunRecord,
    host: SessionHost,
    faults: Sequence[Finding],
) -> Result | None:
    # Open it from the disk, once for all checks. The proof must cover the file that was written: the model in memory
    # would hide a fault of saving.
    result = Result(saved, Model.open(saved.files[0]))
    cache = KeptVerdicts(verdict_folder(), fresh=request.options.fresh)
    settings = request.plan.recipe.parity
    judging = JudgingOptions(settings.measures, settings.noise, request.metric)
    proof = Proof(result.model, settings, request.on_target, request.observer, host, judging, cache)
    record.verdicts = proof.verdicts(feeds, _rounding(request.plan, record))
    judge(record, request.plan, faults)
    if record.exit_code:
        return None
    if request.options.bench:
        record.facts.bench = _timed(request, feeds, saved.files[0], request.options.bench_seconds)
    return result


def _timed(request: PrepareRequest, feeds: RunFeeds, result: Path, seconds: float) -> Bench:
    """Return the times of the result and the input.

    They run on DirectML if the recipe proves there and it is available, otherwise on the CPU.
    """
    from dmlprep.pipeline.timing import time_prepared

    on_dml = request.plan.recipe.parity.dml != "off" and not missing_device(request.on_target)
    request.observer.check_started("bench")
    bench = time_prepared(
        feeds.original,
        result,
        feeds,
        device="dml" if on_dml else "cpu",
        session=replace(request.on_target, time_limit=request.plan.recipe.parity.time_limit),
        seconds=seconds,
        shown=request.model_path,
        progress=request.observer.step_progress,
    )
    request.observer.measured(bench)
    return bench


def _appear(saved: Saved, record: RunRecord, staging: Path, request: PrepareRequest) -> None:
    """Write the record, and move all files of the result from ``staging`` into place, replacing existing ones.

    This is atomic: an interruption leaves either all old or all new files.
    """
    written = staging / request.record_path.name
    with plain_errors(request.record_path):
        written.write_bytes(record.to_json())
    request.files.exchange({path.name: path for path in (*saved.files, written)}, force=request.options.force)


def _rounding(plan: Plan, record: RunRecord) -> Rounding | None:
    """Return how the FP16 emulation rounds: as the last ``fp16`` step that changed the model sets it.

    ``None`` if no ``fp16`` step changed the model.
    """
    for step, done in zip(reversed(plan.steps), reversed(record.steps), strict=True):
        if step.pass_.name == "fp16" and done.outcome == "changed":
            rounding: Rounding = step.pass_.options.rounding
            return rounding
    return None
