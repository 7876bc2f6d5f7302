"""Explain the placement of one node: each rule, in the order of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from dmlprep.core.errors import UsageError
from dmlprep.directml.placement.place import place_facts
from dmlprep.directml.placement.placement import PlacedNode
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.directml.targets.kernels import mismatch
from dmlprep.directml.targets.queries import QUERIES
from dmlprep.graph.model import Model
from dmlprep.record import CODES


def explain_node(model: Model, name: str, target: Target, advice: Callable[[PlacedNode], str]) -> list[str]:
    """Return lines of text: the rules that ONNX Runtime applies to a node, in order, and the device that follows.

    Args:
        name: the node's name, in a subgraph with its graph's path (``If_3/then_branch/Add_1``). For an inlined
            operator, the operator's own name: the lines explain each node of its body. If several nodes have the
            name, the lines explain all of them.
        advice: returns what to do about a node that is on the CPU; empty if there is nothing to do.

    Raises:
        UsageError: there is no such node, or the target's kernels are not known.
        ModelRefused, ToolFailed: as ``read_facts``.
    """
    graph = read_facts(model, target.tables)
    placed = {(n.graph, n.name): n for n in place_facts(graph, target, model.opset).nodes}
    nodes = [n for n in graph.all_nodes() if name in _names(n)]
    if not nodes:
        if any(name in _names(n) for inner in graph.all_graphs() for n in inner.constants):
            return [f"{name}: Constant", "ONNX Runtime turns the node into an initializer, so it does not run"]
        close = get_close_matches(name, {label for n in graph.all_nodes() for label in _names(n)}, 3)
        fix = f"close: {', '.join(close)}" if close else "dmlprep check --format json lists the nodes"
        raise UsageError(f"no node {name!r}", where=str(model.path or ""), fix=fix)
    parts = [_explain(graph, node, placed[node.graph, node.label], target, advice) for node in nodes]
    return [line for part in parts for line in ("", *part)][1:]


def _names(node: NodeFacts) -> set[str]:
    return {node.label, node.path, node.origin or node.label}


def _value(value: Value | None) -> str:
    if value is None:
        return "left out"
    shape = "?" if value.shape is None else ", ".join(str(d if d is not None else "?") for d in value.shape)
    role = " constant" if value.constant else ""
    return f"{value.name}: {value.type or 'unknown type'}[{shape}]{role}"


def _explain(
    graph: GraphFacts, node: NodeFacts, placed: PlacedNode, target: Target, advice: Callable[[PlacedNode], str]
) -> list[str]:
    where = f" in {node.graph}" if node.graph else ""
    lines = [f"{node.label}: {node.key}, version {node.since} (opset {node.opset}){where}"]
    if placed.source is not None:
        lines.append(f"  exported from {placed.source}")
    if node.origin:
        lines.append(f"  inlined from {node.origin}: a function, or an operator for which no provider has a kernel")
    lines += [f"  input {i}: {_value(v)}" for i, v in enumerate(node.inputs)]
    lines += [f"  output {i}: {_value(v)}" for i, v in enumerate(node.outputs)]
    lines += _rules(node, target)
    on_cpu = placed.provider != "DmlExecutionProvider"
    device = "the CPU" if on_cpu else "DirectML"
    lines.append(f"-> {device}: {placed.code} {CODES[placed.code].title}" + _clause(placed.reason))
    if placed.partition is not None:
        lines.append(f"   in fused partition {placed.partition}")
    elif placed.not_fused:
        lines.append(f"   {placed.not_fused} {CODES[placed.not_fused].title}" + _clause(placed.not_fused_reason))
        lines.append(f"   fix: {CODES[placed.not_fused].remedy}")
    for hit in find_quirks(graph, target):
        if hit.node is node:
            lines.append(f"   {hit.quirk.code} {hit.code_row.title}: {hit.detail}; {hit.quirk.effect}")
    if on_cpu and (fix := advice(placed)):
        lines.append(f"   fix: {fix}")
    return lines


def _clause(text: str) -> str:
    return f" ({text})" if text else ""


def _rules(node: NodeFacts, target: Target) -> list[str]:
    rows = target.tables.dml.get(node.key)
    if not rows:
        return [f"1. kernel: {target.name} has no DirectML kernel for {node.key}"]
    kernel = rows.get(node.since)
    versions = ", ".join(map(str, sorted(rows)))
    if kernel is None:
        return [
            f"1. version: DirectML has {versions}; the node has version {node.since}, and only the same version matches"
        ]
    lines = [f"1. version: DirectML has {versions}; {node.since} is among them"]
    broken = mismatch(node, kernel.types)
    if broken is not None:
        label, value = broken
        supported = f"DirectML supports {', '.join(sorted(kernel.types[label]))} there (type {label})"
        return [*lines, f"2. types: {value.name} is {value.type}; {supported}"]
    lines.append("2. types: supported")
    refused = QUERIES[kernel.query](node) if kernel.query else ""
    lines.append(
        f"3. support query {kernel.query}: {refused or 'passed'}" if kernel.query else "3. support query: none"
    )
    if refused:
        return lines
    answer = target.support(node)
    on_cpu = ", ".join(v.name for v in map(node.input, sorted(kernel.cpu_in)) if v is not None)
    return [
        *lines,
        f"4. data types of all values: {answer.reason if answer.code == 'DP505' else 'supported'}",
        f"5. inputs read on the CPU: {on_cpu or 'none'}",
    ]
