"""Open the runs of ``prepare`` for a package, and build their contract.

A package has one run, or one for each bucket (set of sizes).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

import msgspec
import onnx_ir as ir

from dmlprep.core._version import __version__
from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.core.files.outputs import file_name_problem
from dmlprep.directml.placement import place
from dmlprep.directml.targets import Target, find_target, target_names
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import named_data_files
from dmlprep.graph.model.stripping import Stripped, Text, strip
from dmlprep.graph.model.walk import nodes
from dmlprep.metrics import holds_fp16
from dmlprep.package.contract import Bucket, Contract, Memory, PackagedModel, Proof, Removed, TargetVersions, Tensor
from dmlprep.package.machine import Machine
from dmlprep.package.meanings import Known, meanings
from dmlprep.portable.printable import printable, shortened
from dmlprep.record import Check, RunRecord, Verdict
from dmlprep.record.buckets import BUCKETS, BucketsFile

_ON_DIRECTML = Check("parity", "dml")
_SHOWN = 80
"""Limit for the length of a name in an error, in characters."""
_GPU_STEP, _GPU_ALIGNMENT, _PLACEMENT = 4, 16, 65536

_LETTERS = {"DATA_BATCH": "N", "DATA_CHANNEL": "C", "DATA_TIME": "T"}
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}

_SESSION = {
    "enable_mem_pattern": "false: DisableMemPattern",
    "execution_mode": "ORT_SEQUENTIAL",
    "graph_optimization_level": "ORT_ENABLE_ALL",
    "runs": "one at a time in each session",
}


@dataclass(frozen=True)
class Run:
    """One run of ``prepare``, with its model.

    Attributes:
        name, sizes: name and sizes of the bucket; empty if the package has no buckets.
        path: file of the model.
        unproven: reasons why the run did not prove the model on DirectML; empty if it did.
        machine: this machine, whose names are hidden in the texts of the contract.
        stripped: the content of the model file for the package; ``None`` to copy the file.
    """

    name: str
    sizes: dict[str, int]
    model: Model
    path: Path
    record: RunRecord
    unproven: list[str]
    machine: Machine
    stripped: Stripped | None


@dataclass(frozen=True)
class Runs:
    """All runs of a package, at least one.

    Attributes:
        digests: the SHA-256 that the models and the common data file must have, by file name.
    """

    all: list[Run]
    digests: dict[str, str]

    @property
    def stripped(self) -> dict[Path, Stripped]:
        """Path -> content of the models whose metadata is removed."""
        return {run.path: run.stripped for run in self.all if run.stripped is not None}

    @property
    def sources(self) -> list[Path]:
        """The paths of the models and their data files, each once.

        Raises:
            ModelRefused: a data file is not in the folder of its model, or has an invalid name.
        """
        return list(dict.fromkeys(file for run in self.all for file in (run.path, *_data_files(run.model))))

    @property
    def unproven(self) -> list[str]:
        """The reasons why runs did not prove their models on DirectML; empty if all did.

        Each begins with the name of its bucket, if there are buckets.
        """
        return [f"{run.name}: {text}" if run.name else text for run in self.all for text in run.unproven]


def open_runs(folder: Path, *, keep_metadata: bool = False) -> Runs:
    """Open the run, or the runs of all buckets, in a folder that ``prepare`` wrote.

    Args:
        folder: the folder; or a model in it, for its run alone; or ``buckets.json``.
        keep_metadata: True to package the unchanged models, also with names of this machine.

    Raises:
        InputError: the folder has no run, its files do not belong together, or one cannot be read.
        ModelRefused: a model has a name of the machine outside its metadata, or an app cannot use it.
    """
    listed = folder if folder.name == BUCKETS else folder / BUCKETS
    if not listed.is_file():
        run = _open_run(folder, keep_metadata)
        return Runs([run], {run.path.name: run.record.output_sha256})
    if folder.is_dir() and (folder / "model.onnx").is_file():
        what, fix = "the folder contains both a model and buckets", f"pass one of them: model.onnx, or {BUCKETS}"
        raise InputError(what, where=str(folder), code="DP820", fix=fix)
    document = BucketsFile.read(listed)
    runs = [_open_run(listed.parent / one.file, keep_metadata, one.name, one.sizes) for one in document.buckets]
    for run, one in zip(runs, document.buckets, strict=True):
        if run.record.output_sha256 != one.sha256:
            what = f"{BUCKETS} belongs to another {one.file} than the one next to it"
            raise InputError(what, where=str(listed), code="DP820", fix="prepare the buckets again")
    digests = {one.file: one.sha256 for one in document.buckets}
    if document.data is not None:
        digests[document.data.file] = document.data.sha256
        if document.data.file not in {file.name for run in runs for file in _data_files(run.model)}:
            what = f"{BUCKETS} names a data file {document.data.file!r}, which none of its models reads"
            raise InputError(what, where=str(listed), code="DP820", fix="prepare the buckets again")
    return Runs(runs, digests)


def _open_run(run: Path, keep_metadata: bool, name: str = "", sizes: dict[str, int] | None = None) -> Run:
    """Open one run, from the folder that ``prepare -o`` wrote or from the model in it.

    ``name`` and ``sizes`` are those of the bucket, if any.

    Raises:
        InputError: the model or its record is missing.
        ModelRefused: as in ``open_runs``.
    """
    model = run if run.is_file() else run / "model.onnx"
    record = next((p for p in (model.with_suffix(".run.json"), model.with_name("run.json")) if p.is_file()), None)
    if not model.is_file() or record is None:
        missing = "model.onnx" if not model.is_file() else "run.json"
        fix = "pass the folder that dmlprep prepare -o wrote"
        raise InputError(f"no {missing} here", where=str(run), code="DP820", fix=fix)
    opened = Model.open(model)
    read, machine = RunRecord.read(record), Machine.here()
    stripped = None if keep_metadata else without_metadata(model, opened, machine)
    unproven = [machine.hidden(text) for text in not_proved(read)]
    return Run(name, sizes or {}, opened, model, read, unproven, machine, stripped)


def without_metadata(path: Path, model: Model, machine: Machine) -> Stripped | None:
    """Return the content of a model's file without an exporter's metadata; ``None`` if the file has none.

    ``model`` is the model in the file, or the one that was saved there; errors name its own file.

    Raises:
        ModelRefused: a name of the machine is elsewhere in the model, or in its file name.
    """
    stripped = strip(path)
    operators = {node.op_type.lower() for node in nodes(model.ir)}  # torch names a value after its operator: max
    texts = [Text(stripped.path.name, "the file name", is_listed=False), *stripped.texts()]
    names = [(machine.name_in(one.value, paths_only=one.is_listed, ordinary=operators), one.place) for one in texts]
    if places := [f"{shortened(printable(name), _SHOWN)!r} in {place}" for name, place in names if name]:
        more = f", and {len(places) - 1} more" if len(places) > 1 else ""
        raise ModelRefused(
            f"the package would name this machine or its user: {places[0]}{more}",
            where=str(model.path),
            code="DP824",
            fix="rename it where the model is exported, or ship it with --keep-metadata",
        )
    return stripped if stripped.entries or stripped.docs else None


def not_proved(record: RunRecord) -> list[str]:
    """Return the reasons why a run did not prove its model on DirectML, as sentences; empty if it did."""
    reasons = [f"{v.check}: {v.outcome}: {v.reason}" for v in record.verdicts if v.decides and v.outcome != "passed"]
    if record.exit_code and not reasons:
        reasons.append(f"the run ended with exit code {record.exit_code}: {record.error or 'no reason given'}")
    on_directml = [v for v in record.verdicts if v.check.provider == "dml"]
    has_reason = any(v.decides and v.outcome != "passed" for v in on_directml)
    if not has_reason and not any(v.outcome == "passed" for v in on_directml):
        outcome = on_directml[0].outcome if on_directml else "not-run"
        reasons.append(f"{_ON_DIRECTML}: {outcome.replace('-', ' ')}")
    return reasons


def _data_files(model: Model) -> list[Path]:
    """Return the paths of the model's data files.

    Raises:
        ModelRefused: a file is not in the model's folder, because a package has no subfolders, or has an invalid name.
    """
    named = named_data_files(model)
    for name in named:
        if "/" in name or file_name_problem(name):
            what = f"its data file {name!r} is not in the model's folder under a name that Windows allows"
            fix = "dmlprep prepare writes the weights into model.onnx or model.onnx.data"
            raise ModelRefused(what, where=str(model.path), code="DP820", fix=fix)
    return list(named.values())


def joined(runs: Runs, language: str) -> Contract:
    """Return the contract of all runs for a language of the loader; its field ``files`` is still empty.

    Raises:
        ModelRefused: an input or output is not a tensor of known rank, or a data file is not allowed in a package.
    """
    contracts = [_contract(run, language) for run in runs.all]
    if not runs.all[0].name:
        return contracts[0]
    same = [name for name in Bucket.__struct_fields__ if name not in ("name", "sizes")]
    buckets = [
        Bucket(name=run.name, sizes=run.sizes, **{name: getattr(contract, name) for name in same})
        for run, contract in zip(runs.all, contracts, strict=True)
    ]
    return msgspec.structs.replace(contracts[0], buckets=buckets, unproven=runs.unproven)


def _contract(run: Run, language: str) -> Contract:
    model, path, record = run.model, run.path, run.record
    inputs, outputs = tensors(model)
    free = {
        denotation
        for one in inputs
        for size, denotation in zip(one.shape, one.denotations or [""] * len(one.shape), strict=True)
        if isinstance(size, str) and denotation
    }
    return Contract(
        format=1,
        made_by=f"dmlprep {__version__}",
        language=language,
        model=PackagedModel(
            file=path.name,
            data=[file.name for file in _data_files(model)],
            opsets={domain: version or 0 for domain, version in sorted(model.ir.opset_imports.items())},
            ir_version=model.ir.ir_version,
            fp16=holds_fp16(model),
            original_sha256=record.input_sha256,
            proved_sha256=record.output_sha256,
            proved_bytes=path.stat().st_size,
            removed=_removed(run),
        ),
        inputs=inputs,
        outputs=outputs,
        fixed=_fixed(record),
        denotations=sorted(free),
        session=dict(_SESSION),
        target=_versions(model, find_target(record.target)),
        proof=[_proof(verdict, run.machine) for verdict in record.verdicts],
        unproven=run.unproven,
        files={},
        memory=_memory(record),
    )


def _removed(run: Run) -> Removed:
    if run.stripped is None:
        return Removed()
    return Removed(run.stripped.entries, run.stripped.docs, run.path.stat().st_size - run.stripped.nbytes)


def _memory(record: RunRecord) -> Memory | None:
    memory = record.facts.memory
    if memory is None or not memory.known:
        return None
    return Memory(memory.peak, memory.load, max(memory.shared_peak, memory.shared_load))


def _fixed(record: RunRecord) -> dict[str, int]:
    """Return the sizes to which the steps ``pin`` of a run fixed free dimensions, by name."""
    sizes: dict[str, int] = {}
    for step in record.steps:
        values = step.options.get("sizes")
        if step.step.partition(":")[0] == "pin" and isinstance(values, dict):
            sizes |= {str(name): size for name, size in values.items() if isinstance(size, int)}
    return sizes


def tensors(model: Model) -> tuple[list[Tensor], list[Tensor]]:
    """Return the inputs and the outputs of a model that was opened from a file, as a contract describes them.

    Raises:
        ModelRefused: one is not a tensor of known rank, or the model's frame does not fit it.
    """
    graph, known, path = model.ir.graph, meanings(model), model.path
    assert path is not None
    inputs = [_tensor(value, path, known.get(("input", value.name or ""), Known())) for value in graph.inputs]
    outputs = [_tensor(value, path, known.get(("output", value.name or ""), Known())) for value in graph.outputs]
    return inputs, outputs


def _tensor(value: ir.Value, path: Path, known: Known) -> Tensor:
    kind, shape = value.type, value.shape
    if not isinstance(kind, ir.TensorType) or shape is None:
        raise ModelRefused(
            f"{value.name!r} is {kind or 'of unknown type'}{'' if shape is not None else ' of unknown rank'}: "
            "an app needs plain tensors",
            where=str(path),
            code="DP820",
            fix="use tensors of declared rank as inputs and outputs",
        )
    sizes = [d if isinstance(d, int) else (d.value or f"{value.name}:{axis}") for axis, d in enumerate(shape)]
    denotations = [shape.get_denotation(axis) or "" for axis in range(len(sizes))]
    count = None if any(isinstance(size, str) for size in sizes) else prod(s for s in sizes if isinstance(s, int))
    plain = kind.dtype != ir.DataType.STRING
    nbytes = -(-count * kind.dtype.bitwidth // 8) if count is not None and plain else None
    return Tensor(
        name=value.name or "",
        type="string"
        if not plain
        else str(kind.dtype.numpy())
        if kind.dtype.bitwidth >= 8
        else kind.dtype.name.lower(),
        shape=sizes,
        denotations=denotations if any(denotations) else [],
        layout=known.layout or _layout(denotations),
        bytes=nbytes,
        gpu_bytes=None if nbytes is None else -(-nbytes // _GPU_STEP) * _GPU_STEP,
        gpu_alignment=_GPU_ALIGNMENT,
        meaning=known.meaning,
        about=known.about,
        range=known.range,
        picture=known.picture,
    )


def _layout(denotations: list[str]) -> str:
    """Return a layout such as ``NCHW`` from the denotations of all dimensions; empty if they do not determine it."""
    spatial = iter(_SPATIAL.get(denotations.count("DATA_FEATURE"), ""))
    letters = [_LETTERS.get(one) or (next(spatial, "") if one == "DATA_FEATURE" else "") for one in denotations]
    # A hidden size counts as features too: only images have letters for it.
    image = "DATA_CHANNEL" in denotations or "DATA_FEATURE" not in denotations
    return "".join(letters) if letters and all(letters) and image else ""


def _versions(model: Model, target: Target) -> TargetVersions:
    if target.opset_only:
        nodes = on_directml = 0
        lowest = target
    else:
        placed = place(model, target)
        nodes, on_directml = len(placed.nodes), placed.dml_nodes
        lowest = _lowest(model, target, on_directml)
    return TargetVersions(
        name=target.name,
        onnxruntime=target.ort_version,
        directml=target.directml_version,
        feature_level=target.feature_level,
        lowest_onnxruntime=lowest.ort_version,
        lowest_directml=lowest.directml_version,
        lowest_windows=target.windows,
        buffer_placement=_PLACEMENT,
        nodes=nodes,
        nodes_on_directml=on_directml,
    )


def _lowest(model: Model, target: Target, on_directml: int) -> Target:
    """Return the oldest release with which the model still loads and runs as many nodes on DirectML.

    The search goes back from the target, and ends at the first release that does not. ``on_directml`` is the number of
    nodes on DirectML with the target.
    """
    lowest = target
    for name in reversed(target_names()):
        older = find_target(name)
        if older.release >= target.release:
            continue
        loads = model.opset <= older.max_opset and model.ir.ir_version <= older.max_ir
        if not loads or place(model, older).dml_nodes < on_directml:
            break
        lowest = older
    return lowest


def _proof(verdict: Verdict, machine: Machine) -> Proof:
    worst = max(verdict.outputs, key=lambda one: one.max_rel, default=None)
    allowed = worst.bound if worst is not None and worst.error == worst.max_rel and worst.bound > 0 else None
    return Proof(
        check=str(verdict.check),
        outcome=verdict.outcome,
        reason=machine.hidden(verdict.reason),
        device=machine.hidden(str(verdict.device or "")),
        tolerance=machine.hidden(verdict.tolerance),
        worst=None if worst is None else worst.max_rel,
        allowed=allowed,
        inputs=verdict.inputs,
        decides=verdict.decides,
        measured=verdict.measured,
    )
