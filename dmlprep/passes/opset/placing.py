"""Choose the opset, and the operators to write nodes in, that leave the fewest nodes on the CPU.

The first guess (``Context.choose_opset``) ignores the operators that nodes are rewritten in. So the model is converted
to that opset first. Nodes that are then on the CPU are tried in older operators at the same opset, and at other opsets.
The fewest nodes on the CPU win; ties: the first guess, then the opset nearest to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

from dmlprep.core.errors import ModelRefused
from dmlprep.core.text.sizes import count_text
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.analysis.schemas import schema_at, since_versions
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import graphs, label
from dmlprep.passes.base import Context, OnCpu
from dmlprep.passes.opset.bodies import has_body
from dmlprep.passes.opset.handling import STEPS
from dmlprep.passes.opset.lowering import InlineFirst, lower
from dmlprep.passes.opset.steps.for_directml import EQUAL_FORMS
from dmlprep.passes.opset.steps.recurrent import ONE_STEP, is_one_step

_LOWEST = 13
"""The lowest opset of the search. Lower opsets give no release of DirectML more kernels."""

_NODES = 30_000
"""Limit on the nodes that all tries together lower. However large the model, at least three opsets are tried."""

_SHAPED_BODIES = frozenset({"GroupNormalization"})
"""Operators without a kernel in ONNX Runtime, whose function bodies compute with the shapes of their inputs."""


@dataclass(frozen=True)
class Brought:
    """The result of converting a copy of the model to one opset.

    Attributes:
        changed: whether the conversion changed the model.
        context: a copy of the run's context, with the findings of this conversion only.
        on_cpu: the nodes that DirectML would not run.
        times: how often the model was lowered to get this result.
    """

    model: Model
    opset: int
    changed: bool
    context: Context
    on_cpu: list[OnCpu]
    times: int = 1


def best_placed(model: Model, first: int, bring: Callable[[Model, int, Context], bool], context: Context) -> Brought:
    """Try several opsets on copies of ``model``, and return the result with the fewest nodes on the CPU.

    ``_NODES`` limits the number of tries. In the result, LSTM, GRU and RNN nodes of one time step are rewritten too, if
    that leaves no more nodes on the CPU.

    Args:
        first: the opset to try first.
        bring: converts a model to an opset, in place, and returns whether the model changed.

    Raises:
        ModelRefused: neither ``first`` works nor the model's own opset (at most the target's highest); the error is
            that of ``first``.
    """
    otherwise = min(model.opset, context.target.max_opset)
    try:
        best = _brought(model, first, bring, context)
    except ModelRefused as refused:
        if first == otherwise:
            raise
        try:
            best = _brought(model, otherwise, bring, context)
        except ModelRefused:
            raise refused from None
    tried, waiting = {first, best.opset}, _others(best, context)
    # Nodes of functions count once here; on the CPU they count once for each call.
    size = max(len(best.on_cpu), sum(len(graph) for _, graph in graphs(best.model.ir)))
    enough = max(3, _NODES // max(size * best.times, 1))
    while best.on_cpu and len(tried) < enough and (untried := waiting - tried):
        opset = min(untried, key=lambda v: (abs(v - first), -v))
        tried.add(opset)
        try:
            other = _brought(model, opset, bring, context)
        except ModelRefused:
            continue
        waiting |= _others(other, context)
        if len(other.on_cpu) < len(best.on_cpu):
            best = other
    return _written_out(_single_steps(best, context), context)


def _brought(model: Model, opset: int, bring: Callable[[Model, int, Context], bool], context: Context) -> Brought:
    assert context.on_cpu is not None
    work, inner = model.copy(context.before), replace(context, findings=[], facts=deepcopy(context.facts))
    changed = bring(work, opset, inner)
    result = Brought(work, opset, changed, inner, context.on_cpu(work, None if changed else context.before))
    for operator in dict.fromkeys(node.operator for node in result.on_cpu):
        result = _in_other_operators(result, operator)
    return result


def _in_other_operators(brought: Brought, operator: str) -> Brought:
    """Rewrite the nodes of one operator that run on the CPU in older or equal operators.

    Returns a new result if it has fewer nodes on the CPU; otherwise ``brought``, in which ``times`` counts the try.
    """
    names = frozenset(node.name for node in brought.on_cpu if node.operator == operator)
    versions = [v for v in since_versions().get(operator, ()) if v <= brought.opset]
    steps = any((operator, v) in STEPS for v in versions)
    bodies = (schema_at(operator, v) for v in versions)
    if not steps and operator not in EQUAL_FORMS and not any(s is not None and has_body(s) for s in bodies):
        return brought
    what = "that DirectML does not run, rewritten in operators that it runs"
    brought = replace(brought, times=brought.times + 1)
    return _rewritten(brought, names, {operator: len(names)}, what, len(brought.on_cpu) - 1)


def _rewritten(brought: Brought, names: Iterable[str], counts: Mapping[str, int], what: str, most: int) -> Brought:
    """Rewrite the nodes ``names`` in other operators, on a copy of the model.

    Returns a new result, and reports it (DP101), if at most ``most`` nodes remain on the CPU; otherwise ``brought``.

    Args:
        counts: how many nodes of each operator are rewritten, for the report.
        what: the end of the report's sentence.
    """
    work, context = brought.model.copy(), brought.context
    assert context.on_cpu is not None
    try:
        lower(work, brought.opset, rewrite=frozenset(names))
    except (ModelRefused, InlineFirst):
        return brought
    on_cpu = context.on_cpu(work, None)
    if len(on_cpu) > most:
        return brought
    listed = ", ".join(f"{op} {count}" for op, count in sorted(counts.items()))
    nodes = sum(counts.values())
    text = f"opset {brought.opset}: {count_text(nodes, 'node')} {what} ({listed})"
    context.report("DP101", text, kind="for DirectML", nodes=nodes, operators=sorted(counts))
    return replace(brought, model=work, changed=True, on_cpu=on_cpu)


def _single_steps(brought: Brought, context: Context) -> Brought:
    """Rewrite LSTM, GRU and RNN nodes of one time step in operators that DirectML can fuse.

    Returns ``brought`` itself if it has no such node that DirectML cannot fuse, or if more nodes would be on the CPU.
    """
    unfused = {
        op for op in ONE_STEP if (rows := context.target.tables.dml.get(op)) and not any(k.fuses for k in rows.values())
    }
    layers = [n for _, graph in graphs(brought.model.ir) for n in graph if n.op_type in unfused]
    known = Knowledge.swept(brought.model.ir) if layers else None
    single = [n for n in layers if known is not None and is_one_step(n, known)]
    if not single:
        return brought
    what = "of one step rewritten in operators that DirectML can fuse"
    return _rewritten(brought, map(label, single), Counter(n.op_type for n in single), what, len(brought.on_cpu))


def _written_out(brought: Brought, context: Context) -> Brought:
    """Replace nodes by their function bodies if ONNX Runtime would, and if the bodies compute with shapes.

    A session keeps such arithmetic, which breaks up its fused graphs. In a file, ``simplify`` folds it. Returns
    ``brought`` itself if there is no such node, or if more nodes would be on the CPU.
    """
    placed = context.target.tables.dml.keys() | {node.operator for node in brought.on_cpu}
    expanded = [n for _, graph in graphs(brought.model.ir) for n in graph if n.op_type in _SHAPED_BODIES - placed]
    if not expanded:
        return brought
    what = "that ONNX Runtime would expand are written out"
    return _rewritten(brought, map(label, expanded), Counter(n.op_type for n in expanded), what, len(brought.on_cpu))


def _others(brought: Brought, context: Context) -> set[int]:
    """Other opsets worth a try: those at which an operator with nodes on the CPU has another version.

    For each such version it is the opset nearest to the present one, from ``_LOWEST`` to the target's highest.
    """
    top, kernels = context.target.max_opset, context.target.tables.dml
    opsets: set[int] = set()
    for operator in {node.operator for node in brought.on_cpu}:
        versions = [v for v in since_versions().get(operator, ()) if v <= top]
        if not versions or (operator not in kernels and versions[0] <= _LOWEST):
            continue  # DirectML has it at no opset, and no opset has another form of it
        for since, after in zip([0, *versions], [*versions, top + 1], strict=True):
            since = max(since, _LOWEST)
            if since < after and not since <= brought.opset < after:
                opsets.add(min(max(brought.opset, since), after - 1))
    return opsets
