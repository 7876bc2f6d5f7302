"""Select the nodes that a user keeps in FP32, or converts against the policy: by name, operator, pattern or place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from dmlprep.core.errors import RecipeError
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import attribute_graphs, label, nodes, nodes_by_path
from dmlprep.passes.precision.signature import operator_key


@dataclass(frozen=True)
class Selection:
    """A user's selection of nodes.

    Attributes:
        nodes: names from ``label``: a node's own name, or ``Operator(first output)`` without one. A node in a body may
            also have the path before it (``If_3/then_branch/Pow_1``).
        operators: operator types (``Softmax``), with their domain where it is not ai.onnx (``com.microsoft::Gelu``).
        patterns: regular expressions that are searched in the node's name.
        between: pairs of names of values of the main graph. Every node of the main graph on a way from the first value
            to the second is selected. Nodes that read the first value and the node that computes the second count.
    """

    nodes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    between: tuple[tuple[str, str], ...] = ()


def select(model: Model, selection: Selection, field: str) -> dict[int, str]:
    """Return the selected nodes of all graphs: ``id(node)`` -> why.

    Args:
        field: the prefix of the options in messages (``keep`` for ``keep_nodes``).

    Raises:
        RecipeError: a name matches no node or value, ONNX has no such operator, a pattern is not a regular expression,
            or no node is between two values.
    """
    reasons: dict[int, str] = {}
    every = list(nodes(model.ir))
    places = nodes_by_path(model.ir)
    names = {label(n) for n in every} | {n.name for n in every if n.name} | set(places)
    for name in selection.nodes:
        if name not in names:
            raise _wrong(f"{field}_nodes", f"the model has no node {name!r}", _close(name, names))
        if name in places:
            reasons[id(places[name])] = f"named in {field}_nodes"
    for operator in selection.operators:
        if "::" not in operator and not onnx.defs.has(operator):
            known = {operator_key(n) for n in every} | {s.name for s in onnx.defs.get_all_schemas()}
            raise _wrong(f"{field}_operators", f"ONNX has no operator {operator!r}", _close(operator, known))
    compiled = [_compile(pattern, field) for pattern in selection.patterns]
    wanted, operators = set(selection.nodes), set(selection.operators)
    for node in every:
        called = label(node)
        if called in wanted or (node.name and node.name in wanted):
            reasons[id(node)] = f"named in {field}_nodes"
        elif operator_key(node) in operators:
            reasons[id(node)] = f"operator named in {field}_operators"
        elif (pattern := next((p for p in compiled if p.search(called)), None)) is not None:
            reasons[id(node)] = f"matches {pattern.pattern!r} in {field}_patterns"
    for first, last in selection.between:
        for node in _stretch(model, first, last, field):
            reasons.setdefault(id(node), f"between {first!r} and {last!r}")
    return reasons


def _wrong(where: str, what: str, fix: str) -> RecipeError:
    return RecipeError(what, where=where, fix=fix, code="DP901")


def _close(name: str, names: set[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(names), 3, 0.5)
    return f"did you mean {', '.join(map(repr, close))}?" if close else "use a name of this model"


def _compile(pattern: str, field: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise _wrong(f"{field}_patterns", f"{pattern!r} is not a regular expression: {error}", "fix it") from error


def _stretch(model: Model, first: str, last: str, field: str) -> Sequence[ir.Node]:
    graph = model.ir.graph
    outputs = [v for node in graph for v in node.outputs]
    values = {v.name: v for v in (*graph.inputs, *graph.initializers.values(), *outputs) if v.name}
    for name in (first, last):
        if name not in values:
            raise _wrong(f"{field}_between", f"the main graph has no value {name!r}", _close(name, set(values)))
    owners = {id(graph): node for node in nodes(model.ir) for _, graph in attribute_graphs(node)}
    below: set[ir.Node] = set()
    # A value that a subgraph captures is used by a node inside it; the way continues through the node with that
    # subgraph.
    stack = [use.node for use in values[first].uses()]
    while stack:
        node: ir.Node | None = stack.pop()
        while node is not None and node.graph is not model.ir.graph:
            node = owners.get(id(node.graph))
        if node is None or node in below:
            continue
        below.add(node)
        stack += [use.node for v in node.outputs for use in v.uses()]
    above: set[ir.Node] = set()
    up: list[ir.Value | None] = [values[last]]
    while up:
        value = up.pop()
        node = value.producer() if value is not None else None
        if node is not None and node in below and node not in above:
            above.add(node)
            up += node.inputs
    chosen = [n for n in model.ir.graph if n in above]
    if not chosen:
        fix = "choose a value and a later one that depends on it"
        raise _wrong(f"{field}_between", f"no node is between {first!r} and {last!r}", fix)
    return chosen
