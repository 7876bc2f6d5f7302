"""Choose the opset at which most of a model runs on DirectML."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from dmlprep.directml.placement.place import Role, roles
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks.find import concerned
from dmlprep.directml.quirks.gelu import GELU_OPSET, gelu_trap
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, since_version
from dmlprep.directml.targets.flops import flops
from dmlprep.graph.analysis.schemas import schema_of
from dmlprep.graph.model import Frozen, Model
from dmlprep.graph.model.collector import paused_collector

LOWEST = 13
"""The lowest opset to try, unless the model's own is lower. At 13, each release has a kernel for every
operator that has one at a lower opset, except Dropout, which ONNX Runtime removes. Below 11 Resize has another meaning,
below 13 Softmax."""

_ADAPTED = frozenset({"num_outputs", "noop_with_empty_axes", "allowzero"})
"""Attributes that older versions lack, but that do not prevent lowering: dmlprep rewrites the node without them."""


def choose_opset(model: Model, target: Target, frozen: Frozen | None = None) -> int:
    """Return the opset at which the fewest nodes leave DirectML, or have a quirk that another opset avoids.

    Candidates are the opsets from ``LOWEST``, or from the model's own if it is lower, to the target's highest. Nodes of
    ONNX's own operators count, unless they are shape arithmetic or constant. Ties: the fewest floating-point
    operations on the CPU, then the opset nearest to the model's own.

    The count assumes that the model is converted with each operator kept: a node counts by its operator's version at
    the candidate opset. If that opset lacks the operator, the node counts by the function body that replaces it (Gelu
    below opset 20). Without such a body the node counts as one that leaves DirectML.

    Raises:
        UsageError: the target's kernels are not known.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    with paused_collector():
        return best_opset(read_facts(model, frozen=frozen), model.opset, target)


def best_opset(graph: GraphFacts, own: int, target: Target, kind: Mapping[int, Role] | None = None) -> int:
    """Return the same as ``choose_opset``, for facts that were read before.

    Args:
        own: the model's opset.
        kind: the roles of the nodes, from ``roles(graph)``; computed if ``None``.
    """
    by_opset = _by_opset(graph, own, target, kind)
    return min(by_opset, key=lambda opset: (*by_opset[opset], abs(opset - own), opset))


def off_directml(model: Model, target: Target) -> dict[int, int]:
    """Opset -> number of nodes that leave DirectML or have a quirk there, as ``choose_opset`` counts them.

    The opsets are those that ``choose_opset`` compares, up to the highest that the target loads.

    Raises:
        UsageError: the target's kernels are not known.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    with paused_collector():
        return {opset: count for opset, (count, _) in _by_opset(read_facts(model), model.opset, target).items()}


def _by_opset(
    graph: GraphFacts, own: int, target: Target, kind: Mapping[int, Role] | None = None
) -> dict[int, tuple[int, int]]:
    """Opset -> number of nodes that leave DirectML or have a quirk there, and operations of those that leave it."""
    top = target.max_opset
    kind = roles(graph) if kind is None else kind
    ours = [n for n in graph.all_nodes() if kind[id(n)] in ("compute", "control") and not n.domain]
    trap_size = len(gelu_trap(graph)) if target.release >= (1, 20) else 0
    aged = [q.mended_at for q in concerned(target) if q.mended_at for n in ours if n.op in q.ops and q.matches(n)]
    groups = _alike(ours, target)
    by_opset = {}
    for opset in range(min(own, LOWEST, top), top + 1):
        away = [node for group in groups if not _on_dml(group[0], opset, target) for node in group]
        count, work = len(away), sum(flops(node) or 0 for node in away)
        count += (trap_size if opset >= GELU_OPSET else 0) + sum(opset < mended for mended in aged)
        by_opset[opset] = count, work
    return by_opset


def _alike(nodes: list[NodeFacts], target: Target) -> list[list[NodeFacts]]:
    """Return groups of nodes with the same operator, version and types: DirectML runs all of a group, or none.

    A node is a group by itself if a rule reads more than that.
    """
    groups: dict[tuple[object, ...], list[NodeFacts]] = {}
    queried = {op for op, rows in target.tables.dml.items() if any(kernel.query for kernel in rows.values())}
    for node in nodes:
        key: tuple[object, ...] = (id(node),)
        if not node.implicit and node.op not in queried:
            key = node.op, node.since, *(v.type if v is not None else None for v in (*node.inputs, *node.outputs))
        groups.setdefault(key, []).append(node)
    return list(groups.values())


def _on_dml(node: NodeFacts, opset: int, target: Target) -> bool:
    written_since, written_opset = node.since, node.opset
    since = since_version("", node.op, opset)
    if since == 0:
        return _body_on_dml(node, opset, target)
    if since < node.since and not _keeps_attributes(node, opset):
        return False
    node.since, node.opset = since, opset
    try:
        answer = target.support(node)
        if not answer.inlined:
            return answer.provider == "dml"
        return _body_on_dml(node, opset, target)
    finally:
        node.since, node.opset = written_since, written_opset


def _keeps_attributes(node: NodeFacts, opset: int) -> bool:
    """Return whether an older version of the operator has every attribute that the node sets away from its default.

    Attributes of ``_ADAPTED`` do not count.
    """
    now, older = schema_of("", node.op, node.since), schema_of("", node.op, opset)
    if now is None or older is None:
        return now is older
    defaults = {name: a.default_value for name, a in now.attributes.items() if a.default_value.name}
    return all(
        node.ir.attributes[name].value == (ir.from_proto(defaults[name]).value if name in defaults else None)
        for name in node.ir.attributes.keys() - older.attributes.keys() - _ADAPTED
    )


def _body_on_dml(node: NodeFacts, opset: int, target: Target) -> bool:
    """Return whether DirectML has kernels of the right versions for every operator of a function's body."""
    from dmlprep.directml.placement.expand import schema_body

    body, kernels = schema_body(node), target.tables.dml
    return body is not None and all(
        n.op_type == "Constant" or since_version("", n.op_type, opset) in kernels.get(n.op_type, {}) for n in body.node
    )
