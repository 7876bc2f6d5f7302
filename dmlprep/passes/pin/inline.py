"""Put bodies in the place of their nodes: functions that read shapes, branches of an If whose condition is constant."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir
from onnx import inliner

from dmlprep.analysis.flow import chosen_branch
from dmlprep.analysis.known import Known
from dmlprep.model import Frozen, Model, thaw
from dmlprep.model.walk import graphs, main_graphs, nodes
from dmlprep.passes.pin.rewrite import empty_bodies
from dmlprep.rewriting.builder import replace_value
from dmlprep.rewriting.names import Names

__all__ = ["inline_branches", "inline_functions"]

_SHAPE_READERS = frozenset({("", "Shape", ""), ("", "Size", "")})
_BRANCHES = frozenset({("", "If", "")})


def inline_functions(model: Model, *, with_branches: bool = False) -> int:
    """Inline every model-local function that reads shapes: its body is shared by calls with different shapes.

    Args:
        with_branches: those that hold an If as well, whose condition may be constant in this call.

    Returns:
        how many functions were inlined. ``model.ir`` is a new graph then; large tensors are the same objects.
    """
    calls = {key: _called(model.ir, function) for key, function in model.ir.functions.items()}
    reasons = _SHAPE_READERS | _BRANCHES if with_branches else _SHAPE_READERS
    chosen = {key for key, called in calls.items() if called & reasons}
    while more := {key for key, called in calls.items() if key not in chosen and called & chosen}:
        chosen |= more
    if not chosen:
        return 0
    frozen = model.snapshot()
    names = Counter(n.name for n in nodes(model.ir) if n.name)
    proto = inliner.inline_selected_functions(frozen.proto, [(domain, name) for domain, name, _ in chosen])
    model.ir = thaw(Frozen(proto, frozen.tensors))
    _name_apart(model.ir, names)
    return len(chosen)


def _called(model: ir.Model, function: ir.Function) -> set[ir.OperatorIdentifier]:
    """The operators that a function's body and its subgraphs use."""
    prefix = f"function {function.domain}::{function.name}"
    bodies = [graph for path, graph in graphs(model) if path == prefix or path.startswith(prefix + "/")]
    return {("" if n.domain == "ai.onnx" else n.domain, n.op_type, n.overload) for body in bodies for n in body}


def _name_apart(model: ir.Model, before: Counter[str]) -> None:
    """A body that was inlined twice has two nodes of each name."""
    names, seen = Names(model), set[str]()
    for node in nodes(model):
        if node.name in seen and before[node.name] < 2:
            node.name = names.node(node.name)
        if node.name:
            seen.add(node.name)


def inline_branches(model: ir.Model, known: Known) -> int:
    """Put the taken branch of every If whose condition is constant in the place of the node.

    Returns:
        how many were.
    """
    count = 0
    for graph in main_graphs(model):
        again = True
        while again:  # a branch may hold an If of its own
            again = False
            for node in list(graph):
                branch = chosen_branch(known, node)
                if branch is not None:
                    _inline(model, graph, node, branch, known)
                    count += 1
                    again = True
    return count


def _inline(model: ir.Model, graph: ir.Graph, node: ir.Node, branch: ir.Graph, known: Known) -> None:
    names = Names()
    for other in main_graphs(model):
        if other is not branch:
            names.take(other)
    for name, value in list(branch.initializers.items()):
        del branch.initializers[name]
        value.name = names.value(name)
        graph.register_initializer(value)
    body = list(branch)
    results = list(branch.outputs)
    branch.outputs.clear()
    branch.remove(body)
    made = {v for inner in body for v in inner.outputs}
    renamed: set[ir.Value] = set()
    for output, result in zip(node.outputs, results, strict=True):
        if result not in made or result in renamed:
            body.append(ir.Node("", "Identity", [result], num_outputs=1, name=None))
            result = body[-1].outputs[0]
            known.set_type(result, known.types.get(output))
            if output in known.constants:
                known.set_constant(result, known.constants[output])
        # What the model declares of the outer value (denotations, names of sizes) holds; shapes are written anew later.
        replace_value(output, result, "")
        renamed.add(result)
    for inner in body:
        if inner.name:
            inner.name = names.node(inner.name)
        for value in inner.outputs:
            if value not in renamed and value.name:
                value.name = names.value(value.name)
    graph.insert_before(node, body)
    empty_bodies(node)
    graph.remove(node, safe=True)
