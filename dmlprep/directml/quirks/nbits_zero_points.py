"""MatMulNBits with zero points that are floats, or an odd number of them of 8 bits: DirectML computes other numbers.

The rewrite packs floats that are whole numbers, and leaves zero points out that are all the middle of the numbers.
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
    """Pack the zero points, or leave them out."""
    tensor = edit.stored(_ZEROS)
    if tensor is None:
        return "its zero points are not constant"
    bits, columns, count = int(facts.attribute("bits", 4)), int(facts.attribute("N", 0)), _blocks(facts)
    numbers = np.asarray(tensor.numpy())
    packed = numbers.dtype == np.uint8
    if numbers.size != columns * (-(-count * bits // 8) if packed else count):
        return "it has another number of zero points than blocks"
    if packed and not (numbers == 128).all():  # of 8 bits: see the matcher
        return "some of its zero points are not the middle of the numbers"
    whole = numbers.astype(np.float64)
    if not packed and not ((whole == np.rint(whole)) & (whole >= 0) & (whole < 1 << bits)).all():
        return "its zero points are no whole numbers of as many bits"
    if packed or (whole == 1 << bits - 1).all():
        edit.set_input(_ZEROS, None)
        edit.shorten()
        return ""
    if bits == 8 and count % 2:
        return "its zero points are an odd number, and not the middle of the numbers"
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
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/matmul_nbits.py: floats in place of packed numbers, of all "
        "sizes of blocks; 8 bits and an odd number of blocks",
        f"{DML_OPERATORS}MatMulNBits.cpp",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
