"""Shapes of ONNX Runtime's own operators (domain com.microsoft), which onnx has no rules for.

Only operators whose output shapes follow from input shapes and attributes alone. Source of the rules:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import onnx
import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import Known
from dmlprep.graph.model.dims import Dim

DOMAIN = "com.microsoft"

Dims = tuple[Dim, ...]
Output = tuple[int, Dims | None]
"""Element type of an output (``onnx.TensorProto.FLOAT`` ..., 0 if unknown) and its dims (``None``: unknown rank)."""

_FUSED = {"FusedConv": "Conv", "FusedGemm": "Gemm"}

_FLOAT, _UINT8, _INT32 = 1, 2, 6


def unfused(node: ir.Node) -> onnx.NodeProto | None:
    """Return a FusedConv or FusedGemm as a Conv or Gemm, whose output has the same shape; ``None`` for other nodes."""
    inner = _FUSED.get(node.op_type) if node.domain == DOMAIN else None
    if inner is None:
        return None
    proto = ir.serde.serialize_node(node)
    proto.op_type, proto.domain = inner, ""
    del proto.input[3:]
    for attribute in [a for a in proto.attribute if a.name.startswith("activation")]:
        proto.attribute.remove(attribute)
    return proto


def infer(known: Known, node: ir.Node) -> list[Output | None]:
    """Return element type and dims of a node's outputs, in order; ``None``, or no entry at the end, where unknown."""
    if node.domain == DOMAIN:
        rule = _RULES.get(node.op_type)
    else:
        # ONNX Runtime registers these in onnx's own domain, the second below opset 17 too.
        own = node.op_type in ("SimplifiedLayerNormalization", "LayerNormalization")
        rule = _first if own and not node.domain else None
    if rule is None or not node.inputs or known.dims(node.inputs[0]) is None:
        return []
    try:
        return rule(known, node)
    except (IndexError, TypeError, ValueError):  # the operator does not have this rank: the shape is not known
        return []


def _elem(known: Known, node: ir.Node, index: int = 0) -> int:
    return known.dtype(node.inputs[index])


def _dims(known: Known, node: ir.Node, index: int = 0) -> Dims:
    """Return dims of an input; raise TypeError where they are unknown, which ``infer`` turns into "not known"."""
    dims = known.dims(node.inputs[index]) if index < len(node.inputs) else None
    if dims is None:
        raise TypeError("unknown")
    return dims


def _first(known: Known, node: ir.Node) -> list[Output | None]:
    return [(_elem(known, node), _dims(known, node))]


def _skip(known: Known, node: ir.Node) -> list[Output | None]:
    elem, dims = _elem(known, node), _dims(known, node)
    rows = (_FLOAT, (*dims[:-1], 1))
    return [(elem, dims), rows, rows, (elem, dims)]


def _embed(known: Known, node: ir.Node) -> list[Output | None]:
    ids, table = _dims(known, node), _dims(known, node, 2)
    out = (_elem(known, node, 2), (ids[0], ids[1], table[1]))
    return [out, (_INT32, (ids[0],)), out]


def _attention(known: Known, node: ir.Node) -> list[Output | None]:
    batch, sequence = _dims(known, node)[:2]
    sizes = node.attributes.get_ints("qkv_hidden_sizes", None)
    width = _dims(known, node, 1)[1]
    hidden: Dim = sizes[2] if sizes else width // 3 if isinstance(width, int) else None
    return [(_elem(known, node), (batch, sequence, hidden))]


def _multi_head(known: Known, node: ir.Node) -> list[Output | None]:
    elem, query = _elem(known, node), _dims(known, node)
    if len(query) == 5:  # packed [B, S, heads, 3, size]
        return [(elem, (*query[:2], _times(query[2], query[4])))]
    key = _dims(known, node, 1)
    if len(query) != 3:
        return []
    if len(key) == 5:  # packed key and value [B, L, heads, 2, size]
        return [(elem, query)]
    value = _dims(known, node, 2)  # [B, heads, L, size], or [B, L, heads * size]
    return [(elem, (*query[:2], _times(value[1], value[3]) if len(value) == 4 else value[2]))]


def _times(a: Dim, b: Dim) -> Dim:
    return a * b if isinstance(a, int) and isinstance(b, int) else None


def _grouped(known: Known, node: ir.Node) -> list[Output | None]:
    batch, sequence, hidden = _dims(known, node)
    if len(node.inputs) < 2 or node.inputs[1] is None:  # packed
        heads, groups = node.attributes.get_int("num_heads", 0), node.attributes.get_int("kv_num_heads", 0)
        if not isinstance(hidden, int) or heads + 2 * groups <= 0:
            return []
        hidden = hidden * heads // (heads + 2 * groups)
    return [(_elem(known, node), (batch, sequence, hidden))]


def _matmul_nbits(known: Known, node: ir.Node) -> list[Output | None]:
    columns = node.attributes.get_int("N", -1)
    return [(_elem(known, node), (*_dims(known, node)[:-1], columns if columns > 0 else None))]


def _broadcast(a: Sequence[Dim], b: Sequence[Dim]) -> Dims:
    rank = max(len(a), len(b))
    a_dims, b_dims = [1] * (rank - len(a)) + list(a), [1] * (rank - len(b)) + list(b)
    return tuple(y if x == 1 else x if y in (1, x) else None for x, y in zip(a_dims, b_dims, strict=True))


def _product(a: Dims, b: Dims) -> Dims:
    """Return dims of a matrix product of operands of rank 2 and more."""
    if len(a) < 2 or len(b) < 2:
        raise TypeError("unknown")
    return (*_broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def _fused_matmul(known: Known, node: ir.Node) -> list[Output | None]:
    if node.attributes.get_int("transBatchA", 0) or node.attributes.get_int("transBatchB", 0):
        return []
    a, b = _dims(known, node), _dims(known, node, 1)
    if node.attributes.get_int("transA", 0) and len(a) > 1:
        a = (*a[:-2], a[-1], a[-2])
    if node.attributes.get_int("transB", 0) and len(b) > 1:
        b = (*b[:-2], b[-1], b[-2])
    return [(_elem(known, node), _product(a, b))]


def _matmul_to(known: Known, node: ir.Node, index: int) -> list[Output | None]:
    return [(_elem(known, node, index), _product(_dims(known, node), _dims(known, node, 1)))]


def _elementwise(known: Known, node: ir.Node) -> list[Output | None]:
    return [(_elem(known, node), _broadcast(_dims(known, node), _dims(known, node, 3)))]


def _quantize(known: Known, node: ir.Node) -> list[Output | None]:
    has_zero = len(node.inputs) > 2 and node.inputs[2] is not None
    return [(_elem(known, node, 2) if has_zero else _UINT8, _dims(known, node))]


def _half_width(known: Known, node: ir.Node) -> list[Output | None]:
    dims = _dims(known, node)
    last = dims[-1]
    return [(_elem(known, node), (*dims[:-1], last // 2 if isinstance(last, int) else None))]


Rule = Callable[["Known", ir.Node], list[Output | None]]

_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            *("Gelu", "FastGelu", "QuickGelu", "BiasGelu", "BiasAdd", "BiasSoftmax", "Inverse", "RotaryEmbedding"),
            *("GroupNorm", "SkipGroupNorm", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"),
        ),
        _first,
    ),
    "SkipLayerNormalization": _skip,
    "SkipSimplifiedLayerNormalization": _skip,
    "EmbedLayerNormalization": _embed,
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": _grouped,
    "MatMulNBits": _matmul_nbits,
    "FusedMatMul": _fused_matmul,
    "MatMulIntegerToFloat": partial(_matmul_to, index=2),
    "DynamicQuantizeMatMul": partial(_matmul_to, index=0),
    "QLinearAdd": _elementwise,
    "QLinearMul": _elementwise,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": lambda known, node: [(_elem(known, node, 1), _dims(known, node))],
    "BiasSplitGelu": _half_width,
}
