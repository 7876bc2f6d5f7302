"""Every version of every ai.onnx operator that a release has DirectML kernels for, against a reference of that version.

``python -m tests.benchmarks.operator_versions [--release 1.24.4] [--only Resize] [--out FILE]``: each node of ONNX's
node suite is written for each older version of its operator, and runs on DirectML, on the CPU provider without
optimization, and in onnx's reference evaluator. The suite itself has the newest versions only.

An operator gets its defaults from its version: attributes that came later are dropped, and inputs that were attributes
become attributes. An answer is a fault if it agrees with neither reference. A row where DirectML and the CPU provider
differ is printed too. A failure may be a form that the old version does not allow (negative axes of Squeeze-1).

``--memory`` compares where a reader of each output runs with the prediction, which shows ``cpu_out`` of the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from dmlprep.directml.placement import place
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks.find import find_quirks
from dmlprep.directml.targets import Target, find_target
from dmlprep.graph.analysis.schemas import schema_of
from dmlprep.graph.model import Model
from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions, cpu_host, dml_host, dml_status
from tests.benchmarks.conformance import bits, fault
from tests.benchmarks.opset_suite import RANDOM, cases, run_reference

Array = np.ndarray[Any, Any]
LIMIT = 60.0
Groups = dict[tuple[str, int], list["Trial"]]
RENAMED = {"K": "k", "constant_value": "value", "repeats": "tiles"}
"""Names of inputs -> the attributes that they were, where the names differ."""
SHOWN = ("fault", "fails", "cpu differs")


@dataclass(frozen=True, eq=False)
class Trial:
    """One node at one version, with its feeds."""

    name: str
    node: onnx.NodeProto
    opset: int
    feeds: dict[str, Any]
    outputs: list[onnx.ValueInfoProto]
    close: tuple[float, float]

    def model(self) -> onnx.ModelProto:
        inputs = []
        for name, value in self.feeds.items():
            one = value[0] if isinstance(value, list) else value
            kind = helper.np_dtype_to_tensor_dtype(one.dtype)
            make = helper.make_tensor_sequence_value_info if isinstance(value, list) else helper.make_tensor_value_info
            inputs.append(make(name, kind, None if isinstance(value, list) else value.shape))
        graph = helper.make_graph([self.node], "trial", inputs, self.outputs)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8 if self.opset < 21 else 10)


def extras() -> Iterator[tuple[str, onnx.NodeProto, int, dict[str, Any]]]:
    """Nodes for versions and attributes that the suite has no case for."""
    x = np.random.default_rng(1).standard_normal((1, 2, 5, 6)).astype(np.float32)
    scales = {"two": [1.0, 1.0, 2.0, 2.0], "odd": [1.0, 1.0, 1.6, 2.5], "down": [1.0, 1.0, 0.6, 0.5]}
    for (size, factors), mode in ((s, m) for s in scales.items() for m in ("nearest", "linear")):
        given = {"x": x, "s": np.array(factors, np.float32)}
        if size != "down":
            old = helper.make_node("Upsample", ["x"], ["y"], mode=mode, scales=factors)
            yield f"up7-{mode}-{size}", old, 8, {"x": x}
            yield f"up9-{mode}-{size}", helper.make_node("Upsample", ["x", "s"], ["y"], mode=mode), 9, given
        yield f"resize-{mode}-{size}", helper.make_node("Resize", ["x", "s"], ["y"], mode=mode), 10, given
    for (size, factors), mode in ((s, m) for s in scales.items() for m in ("nearest", "linear")):
        asymmetric = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        full = {"x": x, "r": np.array([], np.float32), "s": np.array(factors, np.float32)}
        yield f"asymmetric-{mode}-{size}", helper.make_node("Resize", list(full), ["y"], **asymmetric), 11, full
    more = {"mode": "linear", "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    full = {"x": x, "r": np.array([], np.float32), "s": np.array(scales["two"], np.float32)}
    yield "resize-tf-half", helper.make_node("Resize", ["x", "r", "s"], ["y"], **more), 11, full
    more["mode"] = "nearest"
    yield "resize-tf-half-nearest", helper.make_node("Resize", ["x", "r", "s"], ["y"], **more), 11, full
    index = np.array([[0, 2, 1], [1, 0, 2]], np.int64)
    data = {"x": x[0, 0], "i": index, "u": x[0, 1, :2, :3].copy()}
    for axis in (0, 1):
        yield f"scatter-{axis}", helper.make_node("Scatter", list(data), ["y"], axis=axis), 9, data
    flat = x[0, 0]
    for axis in (0, 1):
        for op in ("Softmax", "LogSoftmax", "Hardmax", "Flatten"):
            node = helper.make_node(op, ["x"], ["y"], axis=axis)
            yield f"{op.lower()}-{axis}", node, 13, {"x": x[0]}
        yield f"lp-{axis}", helper.make_node("LpNormalization", ["x"], ["y"], axis=axis, p=1 + axis), 1, {"x": flat}
    both, at = [x, x + 1], np.array(1, np.int64)
    yield "construct", helper.make_node("SequenceConstruct", ["x", "z"], ["y"]), 11, {"x": x, "z": x + 1}
    yield "join", helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1), 11, {"s": both}
    yield "length", helper.make_node("SequenceLength", ["s"], ["y"]), 11, {"s": both}
    for op in ("SequenceAt", "SequenceErase"):
        yield op, helper.make_node(op, ["s", "i"], ["y"]), 11, {"s": both, "i": at}
    given = {"x": x, **{n: np.array([0.5, 1.5], np.float32) for n in ("s", "b", "m", "v")}}
    yield "batchnorm", helper.make_node("BatchNormalization", list(given), ["y"], epsilon=1e-3), 15, given
    yield "concat", helper.make_node("Concat", ["x", "z"], ["y"], axis=1), 13, {"x": x, "z": x + 1}
    for p in (1, 2, 3):
        yield f"lppool-{p}", helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[2, 3], p=p), 18, {"x": x}
        yield f"globallp-{p}", helper.make_node("GlobalLpPool", ["x"], ["y"], p=p), 2, {"x": x}
    boxes = np.array([[0.3, 0.2, 4.1, 3.4], [1.1, 0.4, 1.5, 0.9], [2, 1, 4, 4]], np.float32)
    where = {"x": np.concatenate([x, x[:, ::-1]]), "r": boxes, "b": np.array([0, 1, 0], np.int64)}
    for ratio, scale, coordinates in itertools.product((0, 2), (0.5, 1.0), ("", "output_half_pixel")):
        sampled = {"sampling_ratio": ratio, "spatial_scale": scale, "output_height": 2, "output_width": 3}
        sampled |= {"coordinate_transformation_mode": coordinates} if coordinates else {}
        node = helper.make_node("RoiAlign", list(where), ["y"], **sampled)
        yield f"roialign-{ratio}-{scale}{coordinates}", node, 16, where
    rois = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 4, 4]], np.float32)
    node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[2, 2], spatial_scale=1.0)
    yield "maxroi", node, 1, {"x": x, "r": rois}
    for spread in (1.0, 30.0):
        yield f"cast-{spread:g}", helper.make_node("Cast", ["x"], ["y"], to=6), 13, {"x": x * np.float32(spread)}


def sources() -> Iterator[tuple[str, onnx.NodeProto, int, dict[str, Any], tuple[float, float]]]:
    """Every one-node case of the suite and of ``extras``: name, node, opset, feeds, tolerances."""
    for case in cases():
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].domain or graph.node[0].op_type in RANDOM:
            continue
        inputs, _ = case.data_sets[0]
        if any(v is None for v in inputs):
            continue
        feeds = {v.name: bits(x) for v, x in zip(graph.input, inputs, strict=True)}
        opset = max(o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx"))
        yield case.name, graph.node[0], opset, feeds, (case.rtol, case.atol)
    for name, node, opset, feeds in extras():
        yield name, node, opset, feeds, (1e-3, 1e-6)


def at_version(
    node: onnx.NodeProto, opset: int, feeds: dict[str, Any], since: int
) -> tuple[Any, dict[str, Any]] | None:
    """The node as version ``since`` writes it, with its feeds; ``None`` where it has no such form."""
    new, old = schema_of("", node.op_type, opset), schema_of("", node.op_type, since)
    if new is None or old is None or old.since_version != since or since > new.since_version:
        return None
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:], copy.input[:]
    if node.op_type == "Resize" and since < 11 and any(a.s == b"cubic" for a in node.attribute):
        return None
    attributes = {a.name: a for a in node.attribute if a.name in old.attributes}
    where = list(new.inputs)
    taken, read = [], {}
    for at, name in enumerate(node.input):
        formal = where[min(at, len(where) - 1)].name
        attribute = RENAMED.get(formal, formal)
        if name and attribute in old.attributes and formal not in {p.name for p in old.inputs}:
            value = feeds.get(name)
            if value is None or isinstance(value, list):
                return None
            plain = value.tolist() if value.ndim else value.item()
            if old.attributes[attribute].type in (onnx.defs.OpSchema.AttrType.INT, onnx.defs.OpSchema.AttrType.FLOAT):
                plain = np.asarray(value).reshape(-1)[0].item()
            if plain == []:
                return None
            attributes[attribute] = helper.make_attribute(attribute, plain)
            continue
        taken.append((formal, name))
    # By name where the older version knows all names that it needs (Resize-10 has no region), else by position.
    names = [p.name for p in old.inputs]
    by_name = {p.name for p in old.inputs if p.option != onnx.defs.OpSchema.FormalParameterOption.Optional} <= {
        p.name for p in new.inputs
    }
    if by_name and names != [p.name for p in new.inputs][: len(names)]:
        found = dict(taken)
        taken = [(n, found.get(n, "")) for n in names]
    if len(taken) > old.max_input:
        taken = taken[: old.max_input]
    while taken and not taken[-1][1]:
        taken.pop()
    if len(taken) < old.min_input or any(a.required and a.name not in attributes for a in old.attributes.values()):
        return None
    copy.input.extend(name for _, name in taken)
    copy.attribute.extend(attributes.values())
    if "consumed_inputs" in old.attributes and len(node.output) > 1:
        return None
    for name in copy.input:
        if name:
            read[name] = feeds[name]
    for formal, actual in zip(old.inputs, copy.input, strict=False):
        value = read.get(actual)
        if isinstance(value, np.ndarray):
            kind = onnx.TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(value.dtype)).lower()
            if f"tensor({kind})" not in formal.types:
                return None
    return copy, read


def last_opset(op: str, since: int, top: int) -> int:
    """The newest opset at which the operator has this version."""
    opset = since
    while opset < top:
        schema = schema_of("", op, opset + 1)
        if schema is None or schema.since_version != since:
            break
        opset += 1
    return opset


def trials(target: Target, only: str, top: int) -> Iterator[tuple[str, int, Trial]]:
    """Operator, version and node: every registered version up to that of the case."""
    tables = target.tables.dml
    for name, node, opset, feeds, close in sources():
        op = node.op_type
        if only and op != only:
            continue
        for since in sorted(tables.get(op, {})):
            if (written := at_version(node, opset, feeds, since)) is None:
                continue
            new, read = written
            if not all(isinstance(v, (list, np.ndarray)) and (not isinstance(v, list) or v) for v in read.values()):
                continue
            stamp = last_opset(op, since, top) if since < 7 else since
            outputs = [onnx.ValueInfoProto(name=o) for o in new.output if o]
            yield op, since, Trial(name, new, stamp, read, outputs, close)


def typed(trial: Trial, target: Target) -> onnx.ModelProto | None:
    """The model with what onnx infers of its outputs' types; ``None`` where it is not valid, or not on DirectML."""
    try:
        model = onnx.shape_inference.infer_shapes(trial.model())
    except Exception:
        return None
    if not all(v.type.WhichOneof("value") for v in model.graph.output):
        return None
    (node, *rest) = place(Model(ir.from_proto(model)), target).nodes or [None]
    return model if node is not None and not rest and node.provider == "DmlExecutionProvider" else None


def together(models: list[onnx.ModelProto]) -> onnx.ModelProto:
    """One model of the nodes of several: a session costs far more than a node."""
    copies = [onnx.compose.add_prefix(model, f"{at}/") for at, model in enumerate(models)]
    joined = copies[0]
    for other in copies[1:]:
        for field in ("node", "input", "output"):
            getattr(joined.graph, field).extend(getattr(other.graph, field))
    return joined


def answers(
    pairs: list[tuple[Trial, onnx.ModelProto]], host: SessionHost, path: Path
) -> Iterator[tuple[str, list[Any]]]:
    """For each node why its session fails, and its outputs. A batch that fails is halved."""
    joined = together([model for _, model in pairs])
    path.write_bytes(joined.SerializeToString())
    feeds = {f"{at}/{name}": value for at, (trial, _) in enumerate(pairs) for name, value in trial.feeds.items()}
    try:
        options = SessionOptions(time_limit=LIMIT, threads=1, optimization="disabled")
        with host.open(path, options) as session:
            found = session.run_any(feeds)
    except (SessionFailure, ValueError, TypeError, OSError) as error:
        if len(pairs) == 1:
            failure = isinstance(error, SessionFailure)
            yield f"{error.kind if failure else 'not fed'}: {' '.join(str(error).split())[:160]}", []
            return
        middle = len(pairs) // 2
        yield from answers(pairs[:middle], host, path)
        yield from answers(pairs[middle:], host, path)
        return
    for at, (_, model) in enumerate(pairs):
        yield "", [found[f"{at}/{value.name}"] for value in model.graph.output]


def apart(found: list[Any], wanted: list[Any], close: tuple[float, float]) -> float | None:
    """The largest difference between two answers, of the largest value; ``None`` where they agree."""
    faults = [fault(f, w, *close) for f, w in zip(found, wanted, strict=False)]
    return max((f for f in faults if f is not None), default=None)


def judge(
    found: list[Trial], most: int, target: Target, hosts: Mapping[str, SessionHost], path: Path
) -> Iterator[tuple[Trial, str, str]]:
    """``right``, ``fault``, ``cpu differs`` (from both others), ``fails`` or why it is not measured; and the detail."""
    models = {trial: typed(trial, target) for trial in found}
    pairs = [(trial, model) for trial, model in models.items() if model is not None]
    pairs = pairs[:: max(1, len(pairs) // most)]
    if not pairs:
        return
    on_cpu = list(answers(pairs, hosts["cpu"], path))
    # An empty output can spoil others of its session (DP634).
    whole = [
        pair
        for pair, (_, outputs) in zip(pairs, on_cpu, strict=True)
        if all(isinstance(o, list) or np.size(o) for o in outputs)
    ]
    on_dml = dict(zip(map(id, whole), answers(whole, hosts["dml"], path), strict=True)) if whole else {}
    for pair, (why_cpu, cpu) in zip(pairs, on_cpu, strict=True):
        trial, model = pair
        why, ours = on_dml.get(id(pair)) or next(answers([pair], hosts["dml"], path))
        try:
            reference = run_reference(model, trial.feeds)
        except Exception:
            reference = []
        if why:
            yield trial, "no provider" if why_cpu else "fails", why
            continue
        if why_cpu and not reference:
            yield trial, "no reference", why_cpu
            continue
        off_cpu = apart(ours, cpu, trial.close) if not why_cpu else None
        off_reference = apart(ours, reference, trial.close) if reference else None
        sides = [("the CPU", off_cpu, not why_cpu), ("the reference", off_reference, bool(reference))]
        detail = ", ".join(f"{off or 0:.2g} from {side}" for side, off, answered in sides if answered)
        if why_cpu:
            yield trial, "right" if off_reference is None else "fault", detail
        elif off_cpu is None:
            yield trial, "right", detail
        else:
            yield trial, "cpu differs" if reference and off_reference is None else "fault", detail


def known_quirk(trial: Trial, target: Target) -> str:
    """The quirk that ``check`` reports for a node; empty for none. Feeds are constants, as most are in models."""
    model = trial.model()
    constant = {n for n in trial.node.input[1:] if isinstance(trial.feeds.get(n), np.ndarray)}
    constant -= set(trial.node.input[:1])
    model.graph.initializer.extend(numpy_helper.from_array(trial.feeds[name], name) for name in sorted(constant))
    fed = [value for value in model.graph.input if value.name not in constant]
    del model.graph.input[:]
    model.graph.input.extend(fed)
    found = find_quirks(read_facts(Model(ir.from_proto(model)), target.tables), target)
    return found[0].quirk.id if found else ""


def with_readers(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model with an Identity behind each output: it stays on the CPU if its kernel leaves the output there."""
    for at, value in enumerate(list(model.graph.output)):
        reader = onnx.ValueInfoProto(name=f"{value.name}/read", type=value.type)
        model.graph.node.append(helper.make_node("Identity", [value.name], [reader.name], name=f"{name}/{at}"))
        model.graph.output.append(reader)
    return model


def misplaced(models: list[onnx.ModelProto], target: Target, host: SessionHost, path: Path) -> Iterator[str]:
    """Nodes that a session places elsewhere than ``place``. A batch that fails is halved."""
    joined = together(models)
    path.write_bytes(joined.SerializeToString())
    options = SessionOptions(time_limit=LIMIT, threads=1, optimization="disabled", unfused=True, record_placement=True)
    try:
        with host.open(path, options) as session:
            real = {node.name: node.provider for node in session.placement()}
    except SessionFailure as error:
        middle = len(models) // 2
        if not middle:
            yield f"{models[0].graph.node[-1].name}: {error.kind} fails"
            return
        yield from misplaced(models[:middle], target, host, path)
        yield from misplaced(models[middle:], target, host, path)
        return
    for node in place(Model(ir.from_proto(joined)), target).nodes:
        if real.get(node.name, node.provider) != node.provider:
            yield f"{node.name} ({node.op}): predicted {node.provider}, placed on {real[node.name]}"


def memory(groups: Groups, target: Target, host: SessionHost, path: Path) -> None:
    """Print the operator versions whose outputs are in other memory than the kernel table has."""
    by_opset: dict[int, list[onnx.ModelProto]] = {}
    for (op, since), found in groups.items():
        model = next((m for trial in found if (m := typed(trial, target)) is not None), None)
        if model is not None:
            by_opset.setdefault(found[0].opset, []).append(with_readers(model, f"{op}-{since}"))
    for models in by_opset.values():
        for line in misplaced(models, target, host, path):
            print(line, flush=True)
    print(sum(map(len, by_opset.values())), "operator versions")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--release", default="1.24.4", help="of onnxruntime-directml, installed")
    parser.add_argument("--only", default="", help="one operator")
    parser.add_argument("--most", type=int, default=12, help="cases of one version of an operator, spread over all")
    parser.add_argument("--memory", action="store_true", help="only look which outputs are in memory of the CPU")
    parser.add_argument("--out", type=Path, help="write {operator-version: {case: [outcome, detail]}} here")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    status = dml_status(arguments.release)
    if not status.available:
        print(f"NOT RUN: {status.reason}", file=sys.stderr)
        return 3
    print(status.device)
    groups: Groups = {}
    target = find_target("ort-" + ".".join(arguments.release.split(".")[:2]))
    for op, since, trial in trials(target, arguments.only, 21):
        groups.setdefault((op, since), []).append(trial)
    table: dict[str, dict[str, tuple[str, str]]] = {}
    with tempfile.TemporaryDirectory() as folder, cpu_host() as cpu, dml_host(arguments.release) as dml:
        if arguments.memory:
            memory(groups, target, dml, Path(folder) / "trial.onnx")
            return 0
        for (op, since), found in sorted(groups.items()):
            rows = table[f"{op}-{since}"] = {}
            path, hosts = Path(folder) / "trial.onnx", {"cpu": cpu, "dml": dml}
            for trial, outcome, detail in judge(found, arguments.most, target, hosts, path):
                known = outcome in SHOWN and known_quirk(trial, target)
                rows[trial.name] = (f"quirk {known}", detail) if known else (outcome, detail)
                if outcome in SHOWN and not known:
                    print(f"{op}-{since} {trial.name}: {outcome}, {detail}", flush=True)
            if not any(outcome in SHOWN or outcome.startswith(("right", "quirk")) for outcome, _ in rows.values()):
                print(f"{op}-{since}: not measured: {rows}", flush=True)
    tables = target.tables.dml
    missing = [f"{op}-{v}" for op, rows in sorted(tables.items()) for v in rows if "::" not in op]
    missing = [name for name in missing if name not in table and not arguments.only]
    print("no case:", ", ".join(missing))
    print(Counter(outcome for rows in table.values() for outcome, _ in rows.values()))
    if arguments.out:
        arguments.out.write_text(json.dumps(table, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
