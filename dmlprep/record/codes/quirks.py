"""Codes DP6xx: quirks of DirectML kernels."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

_FIX = "run the fix-quirks pass (it is in every built-in recipe)"
_EXPORT = "export the model in another form; the page says which"

ROWS: dict[str, Code] = {
    "DP601": Code("Reshape with allowzero and -1", "error", _FIX),
    "DP602": Code("Gemm without C before an activation", "error", _FIX),
    "DP603": Code("MeanVarianceNormalization before an activation", "error", _FIX),
    "DP604": Code("MatMul of rank 5 and more", "error", _FIX),
    "DP605": Code("rank above 8", "error", _FIX),
    "DP606": Code("per-axis quantization at opset 21", "error", _FIX),
    "DP607": Code("DequantizeLinear of an int32 vector without axis", "error", _FIX),
    "DP608": Code("Split with an empty output", "error", _FIX),
    "DP609": Code("ConvTranspose with SAME padding and a stride", "error", _FIX),
    "DP610": Code("Resize that keeps the aspect ratio", "error", _FIX),
    "DP611": Code("Einsum of five labels that sums one", "error", _FIX),
    "DP612": Code("OptionalHasElement without input", "warning", _FIX),
    "DP613": Code("Resize that crops, with axes", "error", _FIX),
    "DP614": Code("Squeeze whose data and axes are one tensor", "note", _FIX),
    "DP615": Code("quantization without zero point", "warning", _FIX),
    "DP616": Code("GridSample of volumes", "error", _EXPORT),
    "DP617": Code("ConvTranspose in one dimension with output_padding", "error", _FIX),
    "DP618": Code("QLinearMatMul with FP16 scales", "error", _FIX),
    "DP619": Code("an activation that QuantizeLinear makes idle", "error", _FIX),
    "DP620": Code("an output that also feeds an activation", "error", _FIX),
    "DP621": Code("a constant output that nodes read", "error", _FIX),
    "DP622": Code("MatMul with a vector as second operand", "error", _FIX),
    "DP623": Code("Pad that crops", "error", _FIX),
    "DP624": Code("reduction of an empty tensor", "error", _FIX),
    "DP625": Code("matrix product over nothing", "error", _FIX),
    "DP626": Code("pooling window that starts in the padding", "error", _FIX),
    "DP627": Code("AveragePool with ceil_mode that counts padding", "error", _FIX),
    "DP628": Code("Resize in a form that DirectML computes otherwise", "error", _FIX),
    "DP629": Code("Cast to bool", "warning", _FIX),
    "DP630": Code("RoiAlign in mode max", "error", _EXPORT),
    "DP631": Code("Clip whose min is above its max", "error", _FIX),
    "DP632": Code("DynamicQuantizeLinear rounds otherwise", "note", _FIX),
    "DP633": Code("quantized Softmax or LeakyRelu", "error", _FIX),
    "DP634": Code("an output that is empty, beside others", "error", _FIX),
    "DP635": Code("GELU by tanh that DirectML computes by erf", "warning", _FIX),
    "DP636": Code("GatherElements or ScatterElements with narrower indices", "error", _FIX),
    "DP637": Code("ScatterElements with more updates than places", "error", _EXPORT),
    "DP638": Code("a part of a Split gated by another part", "error", _FIX),
    "DP640": Code("quirk rewritten", "note"),
    "DP641": Code("quirk left as it is", "warning", "pin the dimensions and simplify, or export another form"),
}
