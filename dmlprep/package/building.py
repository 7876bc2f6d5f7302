"""The contract of a package, from a run's folder; and whether the run passed."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path

import onnx_ir as ir

from dmlprep.core._version import __version__
from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.core.files.outputs import file_name_problem
from dmlprep.directml.placement import place
from dmlprep.directml.targets import Target, find_target, target_names
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import named_data_files
from dmlprep.metrics import holds_fp16
from dmlprep.package.contract import Contract, Memory, PackagedModel, Proof, TargetVersions, Tensor
from dmlprep.package.meanings import Known, meanings
from dmlprep.record import Check, RunRecord, Verdict
from dmlprep.record.buckets import FileEntry

_ON_DIRECTML = Check("parity", "dml")
_GPU_STEP, _GPU_ALIGNMENT, _PLACEMENT = 4, 16, 65536

_LETTERS = {"DATA_BATCH": "N", "DATA_CHANNEL": "C", "DATA_TIME": "T"}
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}

_SESSION = {
    "enable_mem_pattern": "false: DisableMemPattern",
    "execution_mode": "ORT_SEQUENTIAL",
    "graph_optimization_level": "ORT_ENABLE_ALL",
    "runs": "one at a time in the whole process",
}


def open_run(run: Path) -> tuple[Model, Path, RunRecord]:
    """Return the model, its path and its record, from the folder that ``prepare -o`` wrote or the model in it."""
    model = run if run.is_file() else run / "model.onnx"
    record = next((p for p in (model.with_suffix(".run.json"), model.with_name("run.json")) if p.is_file()), None)
    if not model.is_file() or record is None:
        missing = "model.onnx" if not model.is_file() else "run.json"
        fix = "pass the folder that dmlprep prepare -o wrote"
        raise InputError(f"no {missing} here", where=str(run), code="DP820", fix=fix)
    opened = Model.open(model)
    read = RunRecord.read(record)
    if read.output_sha256 != opened.digest():
        what, fix = "this record is of another model than the one beside it", "prepare the model again"
        raise InputError(what, where=str(record), code="DP820", fix=fix)
    return opened, model, read


def not_proved(record: RunRecord) -> list[str]:
    """Return why a run did not prove its model on DirectML, one sentence for each reason."""
    found = [f"{v.check}: {v.outcome}: {v.reason}" for v in record.verdicts if v.decides and v.outcome != "passed"]
    if record.exit_code and not found:
        found.append(f"the run ended with exit code {record.exit_code}: {record.error or 'no reason given'}")
    on_directml = [v for v in record.verdicts if v.check.provider == "dml"]
    said = any(v.decides and v.outcome != "passed" for v in on_directml)
    if not said and not any(v.outcome == "passed" for v in on_directml):
        found.append(f"{_ON_DIRECTML}: {on_directml[0].outcome if on_directml else 'not-run'}: no DirectML ran it")
    return found


def data_files(model: Model) -> list[Path]:
    """Return the model's data files. They must be in its folder, because a package has no folders in it."""
    named = named_data_files(model)
    for name in named:
        if "/" in name or file_name_problem(name):
            what = f"its data file {name!r} is not in the model's folder under a name that Windows allows"
            fix = "dmlprep prepare writes it with one data file, model.onnx.data"
            raise ModelRefused(what, where=str(model.path), code="DP820", fix=fix)
    return list(named.values())


def build_contract(
    model: Model, path: Path, record: RunRecord, language: str, files: Mapping[str, FileEntry], unproven: list[str]
) -> Contract:
    """Return the contract of a package; ``files`` is its content by name."""
    graph = model.ir.graph
    known = meanings(model)
    inputs = [_tensor(value, path, known.get(("input", value.name or ""), Known())) for value in graph.inputs]
    outputs = [_tensor(value, path, known.get(("output", value.name or ""), Known())) for value in graph.outputs]
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
            data=[file.name for file in data_files(model)],
            opsets={domain: version or 0 for domain, version in sorted(model.ir.opset_imports.items())},
            ir_version=model.ir.ir_version,
            fp16=holds_fp16(model),
            original_sha256=record.input_sha256,
        ),
        inputs=inputs,
        outputs=outputs,
        fixed=_fixed(record),
        denotations=sorted(free),
        session=dict(_SESSION),
        target=_versions(model, find_target(record.target)),
        proof=[_proof(verdict) for verdict in record.verdicts],
        unproven=unproven,
        files=dict(sorted(files.items())),
        memory=_memory(record),
    )


def _memory(record: RunRecord) -> Memory | None:
    found = record.facts.memory
    if found is None or not found.known:
        return None
    return Memory(found.peak, found.load, max(found.shared_peak, found.shared_load))


def _fixed(record: RunRecord) -> dict[str, int]:
    """Sizes that the pin steps gave to free dimensions."""
    sizes: dict[str, int] = {}
    for step in record.steps:
        found = step.options.get("sizes")
        if step.step.partition(":")[0] == "pin" and isinstance(found, dict):
            sizes |= {str(name): size for name, size in found.items() if isinstance(size, int)}
    return sizes


def _tensor(value: ir.Value, path: Path, known: Known) -> Tensor:
    kind, shape = value.type, value.shape
    if not isinstance(kind, ir.TensorType) or shape is None:
        raise ModelRefused(
            f"{value.name!r} is {kind or 'of no known type'}{'' if shape is not None else ' of no known rank'}, and an "
            "app is handed plain tensors only",
            where=str(path),
            code="DP820",
            fix="let the model take and give tensors whose rank it declares",
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
    """``NCHW`` of denotations; empty where one is missing, or has no letter of its own."""
    spatial = iter(_SPATIAL.get(denotations.count("DATA_FEATURE"), ""))
    letters = [_LETTERS.get(one) or (next(spatial, "") if one == "DATA_FEATURE" else "") for one in denotations]
    # A hidden size is a feature too: only images have letters for it.
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
    """The oldest of the releases, counted back from the target, that run as many nodes on DirectML."""
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


def _proof(verdict: Verdict) -> Proof:
    return Proof(
        check=str(verdict.check),
        outcome=verdict.outcome,
        reason=verdict.reason,
        device=str(verdict.device or ""),
        tolerance=verdict.tolerance,
        worst=max((one.max_rel for one in verdict.outputs), default=None),
        inputs=verdict.inputs,
        decides=verdict.decides,
        measured=verdict.measured,
    )
