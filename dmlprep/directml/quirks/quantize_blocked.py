"""Blocked QuantizeLinear and DequantizeLinear: since ONNX Runtime 1.25 DirectML reads scales that do not exist.

Four-bit weights that a MatMul reads prevent a session up to 1.21. ONNX Runtime's optimizer fuses the two nodes into a
MatMulNBits, whose weights the fused graph then lacks. On these releases and since 1.25, dmlprep writes a MatMulNBits
with the same numbers, so that the weights stay small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk
from dmlprep.directml.quirks.patterns import only_consumer
from dmlprep.directml.quirks.quantize_axis import Layout, rewrite
from dmlprep.graph.model.constants import held_tensor
from dmlprep.portable.arrays import Array

_BLOCKS = frozenset({16, 32, 64, 128, 256})
"""Sizes of blocks that MatMulNBits supports on DirectML."""


def becomes_nbits(node: NodeFacts) -> bool:
    """Return whether a MatMulNBits can replace the node and its reader.

    The node must be a DequantizeLinear of constant four-bit weights in blocks along the depth. A MatMul must be its
    only reader, as second operand.
    """
    reader, stored, block = only_consumer(node.output()), node.input(0), node.attribute("block_size", 0)
    if node.key != "DequantizeLinear" or reader is None or reader.key != "MatMul" or block not in _BLOCKS:
        return False
    if reader.input(1) is not node.output() or reader.input(0) in (None, node.output()) or reader.graph != node.graph:
        return False
    if stored is None or stored.rank != 2 or not stored.static or node.attribute("axis", 1) != 0:
        return False
    if stored.type not in ("int4", "uint4") or not stored.size or stored.sizes[0] % block:
        return False
    scale, zero = node.input(1), node.input(2)
    beside = [value for value in (scale, zero) if value is not None]
    if scale is None or scale.type not in ("float", "float16") or (zero is not None and zero.type != stored.type):
        return False
    fits = all(value.shape == (stored.sizes[0] // block, stored.sizes[1]) for value in beside)
    return fits and all(value.constant for value in (stored, *beside))


def _matches(node: NodeFacts) -> str:
    block = node.attribute("block_size", 0)
    return f"in blocks of {block} along axis {node.attribute('axis', 1)}" if block else ""


def _as_arithmetic(facts: NodeFacts, edit: Edit) -> str:
    """Replace the node by arithmetic, on data whose blocked axis is split in two: the number of blocks, and the block.

    Return ``""`` or why not.
    """
    x, block = facts.required(), int(facts.attribute("block_size", 0))
    if not x.static:
        return "the shape of its data is unknown"
    whole = tuple(x.sizes)
    axis = int(facts.attribute("axis", 1)) % len(whole)
    if whole[axis] % block:
        return f"{whole[axis]} elements along axis {axis} are not a multiple of blocks of {block}"
    before, after = whole[:axis], whole[axis + 1 :]
    blocks = whole[axis] // block
    return rewrite(facts, edit, Layout((*before, blocks, block, *after), (*before, blocks, 1, *after), whole))


@dataclass(frozen=True)
class _Weights:
    """Weights of a blocked DequantizeLinear, [depth, columns]; ``parts`` has them in the layout of MatMulNBits.

    There, numbers are unsigned, two to a byte with the first one in the low bits: [columns, blocks, block / 2].
    Scales and zero points are [columns, blocks]; zero points are packed in the same way (ONNX Runtime,
    docs/ContribOperators.md).
    """

    numbers: ir.TensorProtocol
    scales: ir.TensorProtocol
    zeros: ir.TensorProtocol | None
    block: int

    @property
    def signed(self) -> bool:
        """Return whether the original numbers are signed (int4), so that zero is in the middle of the range.

        This is what a MatMulNBits without zero points assumes.
        """
        return self.numbers.dtype == ir.DataType.INT4

    @property
    def sizes(self) -> tuple[int, int]:
        """Depth and columns."""
        depth, columns = self.numbers.shape.numpy()
        return int(depth), int(columns)

    def parts(self) -> list[ir.TensorProtocol]:
        """The inputs of the MatMulNBits after the data: weights, scales, and maybe zero points, computed when saved."""
        depth, columns = self.sizes
        shape = (columns, depth // self.block, self.block // 2)
        tensors = [
            _later(lambda: _packed(self._unsigned(self.numbers).T.reshape(*shape[:2], -1)), ir.DataType.UINT8, shape),
            _later(lambda: self.scales.numpy().T, self.scales.dtype, shape[:2]),
        ]
        if self.zeros is not None or not self.signed:
            tensors.append(_later(self._packed_zeros, ir.DataType.UINT8, (columns, -(-shape[1] // 2))))
        return tensors

    def _packed_zeros(self) -> Array:
        depth, columns = self.sizes
        count = depth // self.block
        zeros = np.zeros((columns, count), np.uint8) if self.zeros is None else self._unsigned(self.zeros).T
        return _packed(np.pad(zeros, ((0, 0), (0, count % 2))))

    def _unsigned(self, tensor: ir.TensorProtocol) -> Array:
        return (tensor.numpy().astype(np.int8) + (8 if self.signed else 0)).astype(np.uint8)


def _packed(numbers: Array) -> Array:
    """Pack pairs of four-bit numbers along the last axis into bytes, the first one in the low bits."""
    return np.ascontiguousarray(numbers[..., 0::2] | numbers[..., 1::2] << 4)


def _later(make: Callable[[], Array], dtype: ir.DataType, shape: tuple[int, ...]) -> ir.TensorProtocol:
    return ir.LazyTensor(lambda: ir.Tensor(np.ascontiguousarray(make())), dtype=dtype, shape=ir.Shape(shape))


def _as_nbits(facts: NodeFacts, edit: Edit) -> str:
    """Replace the DequantizeLinear and its MatMul by one MatMulNBits; return ``""`` or why not."""
    reader = only_consumer(facts.output())
    numbers, scales, zeros = ([held_tensor(value) for value in edit.node.inputs] + [None])[:3]
    if reader is None or numbers is None or scales is None:
        return "its weights are not available"
    weights = _Weights(numbers, scales, zeros, int(facts.attribute("block_size", 0)))
    at = edit.at(reader.ir)
    inputs = [reader.ir.inputs[0], *(at.initializer(part, "weights") for part in weights.parts())]
    depth, columns = weights.sizes
    sizes = {"K": depth, "N": columns, "bits": 4, "block_size": weights.block}
    product = at.before("MatMulNBits", inputs, sizes, like=at.output)
    maker = product.producer()
    assert maker is not None
    maker.domain, maker.version = "com.microsoft", None
    at.become(product)
    read = list(edit.node.inputs)
    edit.remove()
    edit.forget(read)
    return ""


QUIRK = Quirk(
    id="quantize-blocked",
    code="DP642",
    title="blocked quantization since ONNX Runtime 1.25",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="wrong numbers",
    first="1.25",
    sources=(
        "measured on onnxruntime-windowsml 1.25.2 and 1.30.0: the numbers differ from run to run; 1.24.4 is right",
    ),
    matches=_matches,
    rewrite=lambda facts, edit: (_as_nbits if becomes_nbits(facts) else _as_arithmetic)(facts, edit),
)

WEIGHTS = replace(
    QUIRK,
    code="DP665",
    title="weights of four bits in blocks, up to ONNX Runtime 1.21",
    outcome="create fails",
    first="1.20",
    last="1.21",
    ops=("DequantizeLinear",),
    sources=("measured by tests/benchmarks/quirks_by_release.py on 1.20.1 and 1.21.1: 80004005; 1.22.0 is right",),
    matches=lambda node: (
        f"the weights of a MatMul, in blocks of {node.attribute('block_size', 0)}" if becomes_nbits(node) else ""
    ),
)
