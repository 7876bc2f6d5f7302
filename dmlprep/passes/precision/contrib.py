"""Types of com.microsoft operators, which onnx has no schema for.

Each row: the variables of the inputs, and of the outputs. ``float`` is always FP32, ``int`` is no floating type.
Source: ONNX Runtime 1.24, docs/ContribOperators.md and onnxruntime/core/graph/contrib_ops/.
An operator that is not here keeps the types it has.
"""

from __future__ import annotations

CONTRIB: dict[str, tuple[str, str]] = {
    "Attention": ("T T T int T T int", "T T"),
    "BiasAdd": ("T T T", "T"),
    "BiasGelu": ("T T", "T"),
    "BiasSoftmax": ("T T", "T"),
    "BiasSplitGelu": ("T T", "T"),
    "ConvTransposeWithDynamicPads": ("T T int T", "T"),
    "DequantizeLinear": ("int T2 int", "T2"),
    "DynamicQuantizeMatMul": ("float int float int float", "float"),
    "EmbedLayerNormalization": ("int int T T T T T int int", "T int T"),
    "FastGelu": ("T T", "T"),
    "FusedConv": ("T T T T", "T"),
    "FusedGemm": ("T T T", "T"),
    "FusedMatMul": ("T T", "T"),
    "FusedMatMulActivation": ("T T", "T"),
    "Gelu": ("T", "T"),
    "GroupNorm": ("T M M", "T"),
    "GroupQueryAttention": ("T T T T T int int T T int T T", "T T T T"),
    "Inverse": ("T", "T"),
    "MatMulIntegerToFloat": ("int int T3 T3 int int T3", "T3"),
    "MatMulNBits": ("T1 int T1 int int T1", "T1"),
    "MultiHeadAttention": ("T T T T int T T T int int", "T T T T"),
    "NhwcConv": ("T T T", "T"),
    "QAttention": ("int int T3 T3 T3 int int int T3", "T3 T3"),
    "QLinearAdd": ("int float int int float int float int", "int"),
    "QLinearAveragePool": ("int float int float int", "int"),
    "QLinearGlobalAveragePool": ("int float int float int", "int"),
    "QLinearLeakyRelu": ("int float int float int", "int"),
    "QLinearMul": ("int float int int float int float int", "int"),
    "QLinearSigmoid": ("int float int float int", "int"),
    "QLinearSoftmax": ("int float int float int", "int"),
    "QuantizeLinear": ("T1 T1 int", "int"),
    "QuickGelu": ("T", "T"),
    "RotaryEmbedding": ("T int T T", "T"),
    "SkipGroupNorm": ("T M M T T", "T T"),
    "SkipLayerNormalization": ("T T T T T", "T float float T"),
    "SkipSimplifiedLayerNormalization": ("T T T T", "T float float T"),
}
