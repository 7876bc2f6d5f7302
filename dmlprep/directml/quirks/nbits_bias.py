"""MatMulNBits with a bias or with indices of groups: DirectML makes no session of it.

The rewrite adds the bias behind the node, and leaves indices out that say what is so without them.
"""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import ORT_SOURCE, Quirk
from dmlprep.directml.targets.facts import NodeFacts

_GROUPS, _BIAS = 4, 5


def _matches(node: NodeFacts) -> str:
    if node.input(_BIAS) is not None:
        return "it has a bias"
    return "it has indices of groups" if node.input(_GROUPS) is not None else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Add the bias behind the node, and drop indices that are in order."""
    node = edit.node
    groups = node.inputs[_GROUPS] if len(node.inputs) > _GROUPS else None
    if groups is not None:
        tensor = groups.const_value if groups.is_initializer() and not groups.is_graph_input() else None
        if tensor is None:
            return "its indices of groups are not constant"
        indices, size = np.asarray(tensor.numpy()).reshape(-1), int(facts.attribute("block_size", 0))
        if size < 1 or not (indices == np.arange(indices.size) // size).all():
            return "its indices of groups change the order of the blocks"
    bias = node.inputs[_BIAS] if len(node.inputs) > _BIAS else None
    for index in range(_GROUPS, len(node.inputs)):
        edit.set_input(index, None)
    while node.inputs[-1] is None:
        node.resize_inputs(len(node.inputs) - 1)
    if bias is None:
        return ""
    product = edit.twin()
    return edit.become(edit.before("Add", [product, bias], like=node.outputs[0]))


QUIRK = Quirk(
    id="nbits-bias",
    code="DP651",
    title="MatMulNBits with a bias or indices of groups",
    ops=("com.microsoft::MatMulNBits",),
    outcome="create fails",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/matmul_nbits.py: 80070057 with either, whatever else it has",
        f"{ORT_SOURCE}onnxruntime/core/providers/dml/DmlExecutionProvider/src/Operators/DmlOperatorMatMulNBits.cpp",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
