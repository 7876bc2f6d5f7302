"""Replace calls of chosen model-local functions by the functions' bodies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.model import Frozen, Model, thaw
from dmlprep.graph.model.walk import GraphLike, attribute_graphs, nodes
from dmlprep.graph.rewriting.names import Names
from dmlprep.process.onnx_worker import calls
from dmlprep.process.onnx_worker.door import OnnxError


def inline_functions(model: Model, operators: Set[tuple[str, str]]) -> int:
    """Inline every model-local function that uses one of the operators, and return the number of these functions.

    A function that calls such a function is inlined as well. ``model.ir`` is a new graph afterwards; large tensors are
    the same objects.

    Args:
        operators: domain and type of each operator; the domain of ONNX's own operators is ``""``.

    Raises:
        ModelRefused: DP003, onnx refuses the functions.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    within = {key: _used(function) for key, function in model.ir.functions.items()}
    chosen = {key for key, used in within.items() if not operators.isdisjoint((d, op) for d, op, _ in used)}
    while more := {key for key, used in within.items() if key not in chosen and used & chosen}:
        chosen |= more
    if not chosen:
        return 0
    frozen = model.snapshot()
    names = Counter(n.name for n in nodes(model.ir) if n.name)
    try:
        proto = calls.inline_functions(frozen.proto, [(domain, name) for domain, name, _ in chosen])
    except OnnxError as error:
        text = f"onnx cannot inline functions: {error.line}"
        raise ModelRefused(text, code="DP003", fix="export the model again") from error
    model.ir = thaw(Frozen(proto, frozen.tensors))
    _name_apart(model.ir, names)
    return len(chosen)


def _used(function: ir.Function) -> set[ir.OperatorIdentifier]:
    """Return the operators that a function's body and its subgraphs use."""
    operators: set[ir.OperatorIdentifier] = set()
    stack: list[GraphLike] = [function]
    while stack:
        for node in stack.pop():
            operators.add(("" if node.domain == "ai.onnx" else node.domain, node.op_type, node.overload))
            stack += [body for _, body in attribute_graphs(node)]
    return operators


def _name_apart(model: ir.Model, before: Counter[str]) -> None:
    """Rename nodes of bodies that were inlined twice, so that each name is unique."""
    names, used_names = Names(model), set[str]()
    for node in nodes(model):
        if node.name in used_names and before[node.name] < 2:
            node.name = names.node(node.name)
        if node.name:
            used_names.add(node.name)
