"""Which nodes a user wants kept in FP32, or converted against the policy: by name, operator, pattern or stretch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from dmlprep.core.errors import RecipeError
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import attribute_graphs, label, nodes, nodes_by_path


@dataclass(frozen=True)
class Selection:
    """How a user names nodes.

    Attributes:
        nodes: names, as ``label`` gives them: a node's own, or ``Operator(first output)`` where it has none; of a node
            in a body also with the path before it (``If_3/then_branch/Pow_1``).
        operators: operator types (``Softmax``), with their domain where it is not ai.onnx (``com.microsoft::Gelu``).
        patterns: regular expressions, searched for in the node's name.
        between: pairs of values; every node on a way from the first to the second, both ends' nodes included.
    """

    nodes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    between: tuple[tuple[str, str], ...] = ()


def _operator(node: ir.Node) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)


def select(model: Model, selection: Selection, field: str) -> dict[int, str]:
    """The nodes that a selection names, of every graph: ``id(node)`` -> why.

    Raises:
        RecipeError: a name matches nothing, ONNX has no such operator, or a pattern is no regular expression;
            ``field`` and its kind say where.
    """
    found: dict[int, str] = {}
    every = list(nodes(model.ir))
    places = nodes_by_path(model.ir)
    names = {label(n) for n in every} | {n.name for n in every if n.name} | set(places)
    for name in selection.nodes:
        if name not in names:
            raise RecipeError(
                f"the model has no node {name!r}", where=f"{field}_nodes", fix=_close(name, names), code="DP901"
            )
        if name in places:
            found[id(places[name])] = f"named in {field}_nodes"
    for operator in selection.operators:
        if "::" not in operator and not onnx.defs.has(operator):
            raise RecipeError(
                f"ONNX has no operator {operator!r}",
                where=f"{field}_operators",
                fix=_close(operator, {_operator(n) for n in every} | {s.name for s in onnx.defs.get_all_schemas()}),
                code="DP901",
            )
    compiled = [_compile(pattern, field) for pattern in selection.patterns]
    wanted, operators = set(selection.nodes), set(selection.operators)
    for node in every:
        called = label(node)
        if called in wanted or (node.name and node.name in wanted):
            found[id(node)] = f"named in {field}_nodes"
        elif _operator(node) in operators:
            found[id(node)] = f"operator named in {field}_operators"
        else:
            for pattern in compiled:
                if pattern.search(called):
                    found[id(node)] = f"matches {pattern.pattern!r} in {field}_patterns"
                    break
    for first, last in selection.between:
        for node in _stretch(model, first, last, field):
            found.setdefault(id(node), f"between {first!r} and {last!r}")
    return found


def _close(name: str, names: set[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(names), 3, 0.5)
    return f"did you mean {', '.join(map(repr, close))}?" if close else "use a name of this model"


def _compile(pattern: str, field: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise RecipeError(
            f"{pattern!r} is no regular expression: {error}", where=f"{field}_patterns", fix="mend it", code="DP901"
        ) from error


def _values(graph: ir.Graph | ir.Function) -> dict[str, ir.Value]:
    values = {v.name: v for v in graph.inputs if v.name}
    if isinstance(graph, ir.Graph):
        values |= dict(graph.initializers)
    for node in graph:
        values |= {v.name: v for v in node.outputs if v.name}
    return values


def _stretch(model: Model, first: str, last: str, field: str) -> Sequence[ir.Node]:
    values = _values(model.ir.graph)
    for name in (first, last):
        if name not in values:
            raise RecipeError(
                f"the main graph has no value {name!r}",
                where=f"{field}_between",
                fix=_close(name, set(values)),
                code="DP901",
            )
    owners = {id(graph): node for node in nodes(model.ir) for _, graph in attribute_graphs(node)}
    below: set[ir.Node] = set()
    # A value that a subgraph captures is used by a node inside it; the way goes on through the node that holds it.
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
    producer = values[last].producer()
    up = [producer] if producer is not None else []
    while up:
        node = up.pop()
        if node in above:
            continue
        above.add(node)
        up += [p for v in node.inputs if v is not None and (p := v.producer()) is not None and p in below]
    chosen = [n for n in model.ir.graph if n in below and n in above]
    if not chosen:
        raise RecipeError(
            f"no node lies between {first!r} and {last!r}",
            where=f"{field}_between",
            fix="name a value and a later one that depends on it",
            code="DP901",
        )
    return chosen
