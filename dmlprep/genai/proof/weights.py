"""How a decoder's weights are held, which says how far it may be from its original."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import tensors

_BLOCKS = {"MatMulNBits", "GatherBlockQuantized", "QMoE"}
_INTEGERS = {ir.DataType.INT4: 4, ir.DataType.UINT4: 4, ir.DataType.INT8: 8, ir.DataType.UINT8: 8}
_ORDER = ("int4", "int8", "fp16", "fp32")


def weights_of(model: Model) -> str:
    """``int4``, ``int8``, ``fp16`` or ``fp32``: the narrowest that weights are held in."""
    found = {*_quantized(model)} or {
        "fp16" for one in tensors(model.ir) if one.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    }
    return next((name for name in _ORDER if name in found), "fp32")


def _quantized(model: Model) -> Iterator[str]:
    for node in model.ir.graph.all_nodes():
        if node.op_type in _BLOCKS:
            bits = node.attributes.get("bits")
            yield "int8" if bits is not None and bits.as_int() > 4 else "int4"
        elif node.op_type == "DequantizeLinear" and node.inputs and node.inputs[0] is not None:
            weight = node.inputs[0].const_value
            if weight is not None and weight.dtype in _INTEGERS:
                yield f"int{_INTEGERS[weight.dtype]}"


def precision_beside(prepared: str, original: str) -> str:
    """The bounds that suit weights as ``prepared`` holds them, beside those of the original.

    Weights that both quantise alike are the same numbers, and may differ by what FP16 around them does.
    """
    if prepared == original and prepared in ("int4", "int8"):
        return "fp16"
    if prepared == "fp32" and original != "fp32":
        return original if original == "fp16" else "fp16"
    return prepared
