"""A constant of four bits that its file stores as int32_data, as ONNX Runtime's quantizer writes zero points."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk
from dmlprep.graph.model.constants import held_tensor

_FOUR_BITS = frozenset({ir.DataType.INT4, ir.DataType.UINT4})


def _unfit(value: ir.Value | None) -> ir.TensorProtoTensor | None:
    tensor = held_tensor(value)
    if not isinstance(tensor, ir.TensorProtoTensor) or tensor.dtype not in _FOUR_BITS:
        return None
    return None if tensor.raw.HasField("raw_data") or not tensor.size else tensor


def _matches(node: NodeFacts) -> str:
    held = next((value for value in node.ir.inputs if _unfit(value) is not None), None)
    return "" if held is None else f"the constant {held.name} is stored as int32_data"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Store the same values as raw data, two elements to a byte, for all readers."""
    for value in edit.node.inputs:
        tensor = _unfit(value)
        if value is None or tensor is None:
            continue
        edit.room(list(tensor.shape.numpy()), 1, "a constant")
        raw = ir.Tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=tensor.name)
        if (node := value.producer()) is None:
            value.const_value = raw
        else:
            node.attributes["value"] = ir.AttrTensor("value", raw)
    return ""


QUIRK = Quirk(
    id="four-bit-constant",
    code="DP663",
    title="a four-bit constant that is not stored as raw data",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="create fails",
    first="1.20",
    sources=(
        "measured by tests/benchmarks/quirks_by_release.py: scalars and vectors, initializers and Constant nodes",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
