"""Repair models in memory that ONNX Runtime accepts but onnx's checker refuses, and report the repairs as findings.

Only unambiguous faults are repaired: the order of nodes, missing opset versions and names of graphs, and an IR version
that is too low. Missing types and shapes of graph outputs, and shapes that contradict onnx's inference, are corrected.
Some faults are only reported: inputs without a rank, operators that only ONNX Runtime defines, and random numbers.
ONNX Runtime's behaviour was measured with 1.24 to 1.31. The file itself is never modified.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from contextlib import suppress

import onnx
import onnx_ir as ir

from dmlprep.core.errors import InputError
from dmlprep.graph.model import protos
from dmlprep.graph.model.bounds import invalid
from dmlprep.graph.model.checking import call_by_their_owner, infer_shapes, infer_strictly, is_own, weightless
from dmlprep.graph.model.frozen import Frozen
from dmlprep.graph.model.protos import bodies
from dmlprep.graph.model.random_ops import draws
from dmlprep.graph.model.walk import graphs, label
from dmlprep.process.onnx_worker import calls
from dmlprep.process.onnx_worker.door import OnnxError
from dmlprep.record import Finding, finding

Nodes = MutableSequence[onnx.NodeProto]

_OF_ONE_VERSION = {
    *("com.microsoft", "com.microsoft.experimental", "com.microsoft.nchwc"),
    *("ai.onnx.preview.training", "ai.onnx.training"),
}
"""Domains with a single version in ONNX Runtime, which assumes version 1 where a model names none."""


def mend(proto: onnx.ModelProto) -> list[Finding]:
    """Repair a parsed model in place, and return a finding for each kind of repair; empty if it needs none.

    Raises:
        InputError: DP003, nodes form a cycle.
    """
    return [*_sort_all(proto), *_name_domains(proto), *_name_graphs(proto), *_raise_ir(proto)]


def _below(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of nodes and all bodies inside them, inner before outer."""
    for node in nodes:
        for body in bodies(node):
            yield from _below(body.node)
            yield body


# The order of nodes


def _sort_all(proto: onnx.ModelProto) -> list[Finding]:
    lists: list[tuple[str, Nodes]] = [(f"body {g.name}", g.node) for g in _below(proto.graph.node)]
    for function in proto.functions:
        lists += [(f"body {g.name}", g.node) for g in _below(function.node)]
        lists.append((f"function {function.name}", function.node))
    lists.append(("the graph", proto.graph.node))
    moved = [where for where, nodes in lists if _sort(nodes)]
    if not moved:
        return []
    text = f"nodes came before nodes that they read from ({first_three(moved)}): dmlprep sorted them"
    return [finding("DP006", text, places=moved)]


def first_three(names: Sequence[str]) -> str:
    """Return the first three names as text, and how many more there are: ``a, b, c and 2 more``."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def _sort(nodes: Nodes) -> bool:
    """Sort nodes in place so that each comes after those that it reads from; return True if the order changed.

    Otherwise the order stays.

    Raises:
        InputError: DP003, nodes form a cycle.
    """
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [{maker[name] for name in _reads(node) if name in maker} for node in nodes]
    if all(max(need, default=-1) < index for index, need in enumerate(needs)):
        return False
    readers: list[list[int]] = [[] for _ in needs]
    for index, need in enumerate(needs):
        for other in need:
            readers[other].append(index)
    open_needs = [len(need) for need in needs]
    ready, order = [i for i, count in enumerate(open_needs) if not count], list[int]()
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            open_needs[reader] -= 1
            if not open_needs[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(needs):
        raise _cycle(nodes, needs, set(range(len(needs))).difference(order))
    copies = [onnx.NodeProto.FromString(nodes[index].SerializeToString()) for index in order]
    del nodes[:]
    nodes.extend(copies)
    return True


def _reads(node: onnx.NodeProto) -> set[str]:
    """Return the names of values that a node reads; for a node with bodies, also the outer values that these read."""
    names = {name for name in node.input if name}
    for body in bodies(node):
        inner_names = {v.name for v in body.input} | {t.name for t in body.initializer}
        inner_names.update(name for inner in body.node for name in inner.output)
        names |= {name for inner in body.node for name in _reads(inner)} - inner_names
        names |= {v.name for v in body.output} - inner_names
    return names


def _cycle(nodes: Nodes, needs: list[set[int]], candidates: set[int]) -> InputError:
    """Return the error that names a cycle among the nodes in ``candidates``, each of which needs another of them."""
    path = [min(candidates)]
    while (following := min(needs[path[-1]] & candidates)) not in path:
        path.append(following)
    ring = [*path[path.index(following) :], following]
    names = [nodes[i].name or f"{nodes[i].op_type}({nodes[i].output[0]})" for i in reversed(ring)]
    shown = names if len(names) <= 6 else [*names[:3], "...", *names[-2:]]
    return invalid(f"nodes form a cycle: {' -> '.join(shown)}")


# Versions and names


def _name_domains(proto: onnx.ModelProto) -> list[Finding]:
    every = [*proto.graph.node, *(node for body in _below(proto.graph.node) for node in body.node)]
    counts = Counter(node.domain for node in every)
    named = {entry.domain for entry in proto.opset_import}
    findings = []
    for domain in sorted(set(counts) - named):
        version = 1 if domain in _OF_ONE_VERSION else _newest(domain, every) if domain in ("", "ai.onnx.ml") else None
        if version is None:
            continue
        proto.opset_import.add(domain=domain, version=version)
        missing = f"the model has no version for {domain or 'ai.onnx'}, but {counts[domain]} of its operators"
        text = f"{missing}: dmlprep uses {version}, as ONNX Runtime does"
        findings.append(finding("DP007", text, domain=domain, version=version))
    return findings


def _newest(domain: str, nodes: Iterable[onnx.NodeProto]) -> int | None:
    """Return the opset that ONNX Runtime assumes for a domain without one: the newest version of the used operators.

    ``None`` if an operator is unknown or withdrawn.
    """
    try:
        schemas = [onnx.defs.get_schema(node.op_type, domain) for node in nodes if node.domain == domain]
    except onnx.defs.SchemaError:
        return None
    return None if any(s.deprecated for s in schemas) else max(s.since_version for s in schemas)


def _name_graphs(proto: onnx.ModelProto) -> list[Finding]:
    nameless = [graph for graph in (proto.graph, *_below(proto.graph.node)) if not graph.name]
    for graph in nameless:
        graph.name = "main_graph" if graph is proto.graph else "body"
    return [finding("DP008", "a graph had no name: dmlprep added one")] if nameless else []


def _raise_ir(proto: onnx.ModelProto) -> list[Finding]:
    """Turn a model that breaks the rules of its IR version (below 4) into version 4, in place; return a finding.

    Before version 4, constants must be listed as inputs; before 3, a model has no opsets. ONNX Runtime requires
    neither. Empty if nothing changed.
    """
    listed, constants = {v.name for v in proto.graph.input}, {t.name for t in proto.graph.initializer}
    before, loose = proto.ir_version, len(constants - listed)
    if before >= 4 or (before == 3 and not loose):
        return []
    inputs = [v for v in proto.graph.input if v.name not in constants]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    proto.ir_version = 4
    why = f"{loose} constants are not inputs, as version 3 requires" if before == 3 else "it names opsets"
    text = f"the file is of IR version {before}, but {why}: dmlprep reads it as version 4, as ONNX Runtime does"
    return [finding("DP009", text, ir_version=before)]


# What is known of a model that is in memory


def describe_ends(model: ir.Model) -> list[Finding]:
    """Infer missing types and shapes of graph outputs, in place; return findings about them.

    Inputs without a known rank also get a finding.

    Raises:
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    lacking = [v for v in model.graph.outputs if v.type is None or v.shape is None]
    findings = []
    if lacking:
        types, what = {}, ""
        try:
            inferred = infer_shapes(model).graph
            types = {v.name: v.type for v in (*inferred.value_info, *inferred.output) if v.type.WhichOneof("value")}
        except OnnxError as error:
            what = f"they cannot be inferred: {error.line}"
        for value in lacking:
            if (proto := types.get(value.name or "")) is not None:
                value.type = value.type or ir.serde.deserialize_type_proto_for_type(proto)
                value.shape = value.shape or ir.serde.deserialize_type_proto_for_shape(proto)
        inferred_all = all(v.type is not None and v.shape is not None for v in lacking)
        what = what or f"dmlprep infers {'them' if inferred_all else 'what it can'} from the graph"
        names = first_three([v.name or "" for v in lacking])
        findings.append(finding("DP008", f"outputs have no type or no shape ({names}): {what}"))
    for value in model.graph.inputs:
        if value.shape is None and isinstance(value.type, ir.TensorType):
            text = f"input {value.name} has no shape and no rank"
            fix = f"""set its whole shape: --set "step.pin.shapes={{'{value.name}'=[1, 3]}}\""""
            findings.append(finding("DP008", text, node=value.name or "", remedy=fix))
    return findings


def own_operators(model: ir.Model) -> list[Finding]:
    """Return findings about operators in ONNX's domain that only ONNX Runtime defines, at the model's opset."""
    opset = model.opset_imports.get("", 1)
    own = Counter(n.op_type for _, graph in graphs(model) for n in graph if is_own(n.domain, n.op_type, opset))
    return [
        finding("DP010", f"{count} x {name} at opset {opset}: ONNX Runtime's own operator, not ONNX's", count=count)
        for name, count in sorted(own.items())
    ]


def random_nodes(model: ir.Model) -> list[Finding]:
    """Return a finding about the nodes that draw random numbers in each run; empty if there are none."""
    drawing = [n for _, graph in graphs(model) for n in graph if draws(n)]
    if not drawing:
        return []
    first, *others = drawing
    name = f"{first.op_type} {first.name}" if first.name else label(first)
    mode = " in training mode" if first.op_type == "Dropout" else ""
    more = f" (and {len(others)} more)" if others else ""
    text = f"{name}{mode} draws random numbers in each run{more}: outputs that depend on them cannot be compared"
    return [finding("DP011", text, node=label(first), count=len(drawing))]


def drop_wrong_shapes(model: ir.Model, frozen: Frozen) -> list[Finding]:
    """Remove shapes inside the main graph that contradict onnx's inference without them, in place.

    Return a finding about it; empty if no shape was removed.

    ONNX Runtime warns about them and uses the inferred shape; onnx's checker refuses the model. Exporters leave them if
    they change a graph after its inference: onnxruntime-genai's builder declares each constant as a scalar. A type that
    contradicts stays, because ONNX Runtime refuses the model then. If a finding is returned, ``frozen`` is out of date.

    Raises:
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    if not frozen.proto.graph.value_info:
        return []
    proto = protos.copy(weightless(frozen))
    call_by_their_owner(proto)
    with suppress(OnnxError):
        infer_strictly(proto, frozen)
        return []
    noted = {v.name: v.type for v in frozen.proto.graph.value_info}
    for value in proto.graph.value_info:  # of the copy
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")
    try:
        inferred = {v.name: v.type for v in calls.infer_shapes(proto, propagate=False).graph.value_info}
    except OnnxError:
        return []
    wrong = [name for name, type_ in noted.items() if name in inferred and _contradict(type_, inferred[name])]
    if not wrong:
        return []
    values = {value.name: value for node in model.graph for value in node.outputs}
    for name in wrong:
        if name in values:
            values[name].shape = None
    names = first_three(wrong)
    text = f"the file has shapes inside the graph that contradict its nodes ({names}): dmlprep uses inferred shapes"
    return [finding("DP018", f"{text}, as ONNX Runtime does", values=wrong[:100], count=len(wrong))]


def _contradict(noted: onnx.TypeProto, inferred: onnx.TypeProto) -> bool:
    """Return True if the shapes of two types differ in rank, or in a size that is a number in both."""
    a, b = noted.tensor_type, inferred.tensor_type
    if not (a.HasField("shape") and b.HasField("shape")):
        return False
    if len(a.shape.dim) != len(b.shape.dim):
        return True
    pairs = zip(a.shape.dim, b.shape.dim, strict=True)
    return any(x.HasField("dim_value") and y.HasField("dim_value") and x.dim_value != y.dim_value for x, y in pairs)
