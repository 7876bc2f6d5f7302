"""Find which element types a model uses, and choose the tolerance by them."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.analysis.operators import is_stored_weight
from dmlprep.graph.model import Model
from dmlprep.graph.model.constants import held_tensor
from dmlprep.graph.model.texts import cast_target
from dmlprep.graph.model.walk import nodes, tensors
from dmlprep.metrics.tolerances import choose_tolerance
from dmlprep.portable.measure import Tolerance


def holds_fp16(model: Model) -> bool:
    """Return whether any constant, graph input or result of a Cast is FP16 or bfloat16. Reads no weights."""
    return _holds(model, (ir.DataType.FLOAT16, ir.DataType.BFLOAT16))


def holds_rare_floats(model: Model) -> bool:
    """Return whether any constant, graph input or result of a Cast is bfloat16 or FP64. Reads no weights.

    ONNX Runtime's CPU provider has only some kernels for these types: almost none for bfloat16, and for FP64 none of
    Conv, Cos, Erf, and GridSample with an FP64 grid.
    """
    return _holds(model, (ir.DataType.BFLOAT16, ir.DataType.DOUBLE))


def _holds(model: Model, half: tuple[ir.DataType, ...]) -> bool:
    if any(t.dtype in half for t in tensors(model.ir)) or any(v.dtype in half for v in model.ir.graph.inputs):
        return True
    return any(cast_target(n) in half for n in nodes(model.ir) if n.op_type == "Cast")


def quantizes(model: Model) -> bool:
    """Return whether a model quantizes activations, so that a change of the last bit can become a step of 1/255."""
    kinds = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger")
    return any(n.op_type in kinds for n in nodes(model.ir))


def has_few_bits(model: Model) -> bool:
    """Return whether any node has weights of few bits: MatMulNBits, or one of two forms of DequantizeLinear.

    The forms are four-bit constants, and the nodes that the step ``weights`` writes (``is_stored_weight``).
    """
    version = model.ir.ir_version
    return any(n.op_type == "MatMulNBits" or is_stored_weight(n, version) or _has_four_bits(n) for n in nodes(model.ir))


def _has_four_bits(node: ir.Node) -> bool:
    if node.op_type != "DequantizeLinear" or not node.inputs:
        return False
    tensor = held_tensor(node.inputs[0])
    return tensor is not None and tensor.dtype in (ir.DataType.INT4, ir.DataType.UINT4)


def tolerance_for(name: str, candidate: Model, reference: Model, device: str) -> Tolerance:
    """Return the tolerance of a name; for ``auto``, the one that fits the types in the two models and the device.

    ``device``: ``cpu``, ``dml``, or ``fp16-emulation``.

    Raises:
        UsageError: as ``find_tolerance``.
    """
    few_bits = has_few_bits(candidate) and not has_few_bits(reference)
    # An original in bfloat16 rounds each result to 8 bits itself.
    fp16, quantized = holds_fp16(candidate) or _holds(reference, (ir.DataType.BFLOAT16,)), quantizes(candidate)
    return choose_tolerance(name, fp16=fp16, quantized=quantized, device=device, few_bits=few_bits)
