"""MatMulNBits with zero points that DirectML reads wrongly, or with a bias or indices of groups, which it refuses.

The rewrites pack zero points that are whole numbers, and add the bias after the node. They remove zero points that all
are the middle of the range (8 for 4 bits, 128 for 8), and indices of groups without effect.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import DML_OPERATORS, Edit, NodeFacts, Quirk

_ZEROS = 3


def _matches(node: NodeFacts) -> str:
    zeros = node.input(_ZEROS)
    if zeros is None:
        return ""
    if zeros.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return "its zero points are floats"
    count = _blocks(node)
    odd = node.attribute("bits", 4) == 8 and count % 2 == 1
    return f"each column has {count} zero points of 8 bits, an odd number" if odd else ""


def _blocks(node: NodeFacts) -> int:
    depth, size = int(node.attribute("K", 0)), int(node.attribute("block_size", 0))
    return depth // size if size > 0 else 0


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Pack the zero points, or remove them if all are the middle of the range."""
    tensor = edit.stored(_ZEROS)
    if tensor is None:
        return "its zero points are not constant"
    bits, columns, count = int(facts.attribute("bits", 4)), int(facts.attribute("N", 0)), _blocks(facts)
    numbers = np.asarray(tensor.numpy())
    packed = numbers.dtype == np.uint8
    if numbers.size != columns * (-(-count * bits // 8) if packed else count):
        return "the number of its zero points is not the number of its blocks"
    if packed and not (numbers == 128).all():  # of 8 bits: see the matcher
        return "some of its zero points are not 128, the middle of 8 bits"
    whole = numbers.astype(np.float64)
    if not packed and not ((whole == np.rint(whole)) & (whole >= 0) & (whole < 1 << bits)).all():
        return f"its zero points are not whole numbers of {bits} bits"
    if packed or (whole == 1 << bits - 1).all():
        edit.set_input(_ZEROS, None)
        edit.shorten()
        return ""
    if bits == 8 and count % 2:
        return f"each column has {count} zero points of 8 bits, an odd number, and some are not 128 (the middle)"
    bytes_ = whole.reshape(columns, count).astype(np.uint8)
    if bits == 4:
        even = np.pad(bytes_, ((0, 0), (0, count % 2)))
        bytes_ = np.asarray(even[:, 0::2] | even[:, 1::2] << 4, np.uint8)
    edit.set_input(_ZEROS, edit.constant(bytes_, "zero_points"))
    return ""


QUIRK = Quirk(
    id="nbits-zero-points",
    code="DP650",
    title="MatMulNBits with zero points that DirectML reads wrongly",
    ops=("com.microsoft::MatMulNBits",),
    outcome="wrong numbers",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/matmul_nbits.py: floats instead of packed numbers, of all "
        "sizes of blocks; 8 bits and an odd number of blocks",
        f"{DML_OPERATORS}MatMulNBits.cpp",
    ),
    matches=_matches,
    rewrite=_rewrite,
)


_GROUPS, _BIAS = 4, 5


def _matches_bias(node: NodeFacts) -> str:
    if node.input(_BIAS) is not None:
        return "it has a bias"
    return "it has group indices (g_idx)" if node.input(_GROUPS) is not None else ""


def _rewrite_bias(facts: NodeFacts, edit: Edit) -> str:
    """Add the bias after the node, and remove indices of groups that are in the usual order."""
    if edit.optional(_GROUPS) is not None:
        tensor = edit.stored(_GROUPS)
        if tensor is None:
            return "its group indices (g_idx) are not constant"
        indices, size = np.asarray(tensor.numpy()).reshape(-1), int(facts.attribute("block_size", 0))
        if size < 1 or not (indices == np.arange(indices.size) // size).all():
            return "its group indices (g_idx) change the order of the blocks"
    bias = edit.optional(_BIAS)
    for index in range(_GROUPS, len(edit.node.inputs)):
        edit.set_input(index, None)
    edit.shorten()
    return "" if bias is None else edit.become(edit.before("Add", [edit.twin(), bias], like=edit.output))


QUIRK_BIAS = Quirk(
    id="nbits-bias",
    code="DP651",
    title="MatMulNBits with a bias or indices of groups",
    ops=("com.microsoft::MatMulNBits",),
    outcome="create fails",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/matmul_nbits.py: 80070057 with either, whatever else it has",
        f"{DML_OPERATORS}MatMulNBits.cpp",
    ),
    matches=_matches_bias,
    rewrite=_rewrite_bias,
)
