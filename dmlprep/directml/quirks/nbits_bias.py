"""MatMulNBits with a bias or with indices of groups: DirectML makes no session of it.

The rewrite adds the bias behind the node, and leaves indices out that say what is so without them.
"""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import DML_OPERATORS, Edit, NodeFacts, Quirk

_GROUPS, _BIAS = 4, 5


def _matches(node: NodeFacts) -> str:
    if node.input(_BIAS) is not None:
        return "it has a bias"
    return "it has indices of groups" if node.input(_GROUPS) is not None else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Add the bias behind the node, and drop indices that are in order."""
    if edit.optional(_GROUPS) is not None:
        tensor = edit.stored(_GROUPS)
        if tensor is None:
            return "its indices of groups are not constant"
        indices, size = np.asarray(tensor.numpy()).reshape(-1), int(facts.attribute("block_size", 0))
        if size < 1 or not (indices == np.arange(indices.size) // size).all():
            return "its indices of groups change the order of the blocks"
    bias = edit.optional(_BIAS)
    for index in range(_GROUPS, len(edit.node.inputs)):
        edit.set_input(index, None)
    edit.shorten()
    return "" if bias is None else edit.become(edit.before("Add", [edit.twin(), bias], like=edit.output))


QUIRK = Quirk(
    id="nbits-bias",
    code="DP651",
    title="MatMulNBits with a bias or indices of groups",
    ops=("com.microsoft::MatMulNBits",),
    outcome="create fails",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/matmul_nbits.py: 80070057 with either, whatever else it has",
        f"{DML_OPERATORS}MatMulNBits.cpp",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
