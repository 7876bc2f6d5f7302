"""Tables of how each version of each ai.onnx operator is lowered to the version before, or relabelled upward.

If a newer onnx has an operator version that is not in the tables, ``tests/passes/opset/test_table.py`` fails.
"""

from __future__ import annotations

from typing import Literal

from dmlprep.graph.analysis.schemas import NEWEST, schema_at, since_versions
from dmlprep.passes.opset.bodies import has_body
from dmlprep.passes.opset.build import Steps
from dmlprep.passes.opset.steps import (
    bits,
    normalization,
    pools,
    quantization,
    reductions,
    resizing,
    sampling,
    scatters,
    shapes,
    spectra,
    types,
)

OLDEST = 11
"""The oldest opset that nodes are lowered to."""

Handling = Literal["relabel", "step", "body", "refuse", "none"]

_PARTS = (bits, normalization, pools, quantization, reductions, resizing, sampling, scatters, shapes, spectra, types)
STEPS: Steps = {step: write for part in _PARTS for step, write in part.STEPS.items()}


def _by_operator(text: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(map(int, versions)) for name, *versions in map(str.split, text.split(";"))}


WIDENED = _by_operator("""
Abs 13; Acos 22; Acosh 22; Add 13 14; ArgMax 13; ArgMin 13; Asin 22; Asinh 22; Atan 22; Atanh 22;
BatchNormalization 15; Bernoulli 22; Ceil 13; Celu 28; Clip 12 13; Compress 28; Concat 13; Constant 13 19 21 23 24 25;
ConstantOfShape 21 23 24 25; Conv 22; ConvTranspose 22; Cos 22; Cosh 22; CumSum 14; DeformConv 22; DepthToSpace 13 28;
Det 22; Div 13 14; Dropout 13 22; Einsum 28; Elu 22; Equal 13 19; Erf 13; Exp 13; Expand 13; EyeLike 22;
Flatten 13 21 23 24 25; Floor 13; GRU 22; Gather 13; GatherElements 13; GatherND 13; Gemm 13; GlobalAveragePool 22;
GlobalLpPool 22; GlobalMaxPool 22; Greater 13; GreaterOrEqual 16; GridSample 22; HardSigmoid 22; HardSwish 22;
Identity 13 14 16 19 21 23 24 25; If 13 16 19 21 23 24 25; InstanceNormalization 22; IsInf 20; IsNaN 13 20; LRN 13;
LSTM 22; LeakyRelu 16; Less 13; LessOrEqual 16; Log 13; Loop 13 16 19 21 23 24 25; LpNormalization 22;
MatMul 13; Max 13; MaxPool 12; MaxRoiPool 22; MaxUnpool 22; Mean 13; MeanVarianceNormalization 13; Min 13;
Mish 22; Mod 13; Mul 13 14; Multinomial 22; Neg 13; NegativeLogLikelihoodLoss 13 22; NonZero 13; OneHot 28;
Optional 28; OptionalGetElement 28; OptionalHasElement 28; PRelu 16; Pad 13 21 23 24 25; Pow 12 13 15; QLinearMatMul 21;
RNN 22;
RandomNormal 22; RandomNormalLike 22; RandomUniform 22; RandomUniformLike 22; Reciprocal 13; ReduceL1 13; ReduceL2 13;
ReduceLogSum 13 28; ReduceLogSumExp 13 28; ReduceMax 12 13; ReduceMean 13; ReduceMin 12 13; ReduceProd 13;
ReduceSumSquare 13; Relu 13 14; Reshape 13 19 21 23 24 25; ReverseSequence 28; RoiAlign 22; Round 22;
Scan 16 19 21 23 24 25; ScatterElements 13; ScatterND 13; Selu 22; Shape 13 19 21 23 24 25; Sigmoid 13; Sign 13;
Sin 22; Sinh 22; Size 13 19 21 23 24 25; Slice 13; SoftmaxCrossEntropyLoss 13; Softplus 22; Softsign 22;
SpaceToDepth 13; SplitToSequence 24; Sqrt 13; Squeeze 21 23 24 25; Sub 13 14; Sum 13; Tan 22; Tanh 13;
ThresholdedRelu 22; Tile 13; TopK 24; Transpose 13 21 23 24 25; Unique 28; Unsqueeze 21 23 24 25; Where 16
""")
"""Map from an operator to its versions that only added types (or a clearer text). A node that the older version
accepts computes the same in both."""

REFUSED: dict[tuple[str, int], str] = {
    ("ImageDecoder", 20): "no older operator reads image files",
    ("RegexFullMatch", 20): "no older operator matches regular expressions",
    ("StringConcat", 20): "no older operator joins strings",
    ("StringSplit", 20): "no older operator splits strings",
    ("Optional", 15): "optional types do not exist before opset 15",
    ("OptionalGetElement", 15): "optional types do not exist before opset 15",
    ("OptionalHasElement", 15): "optional types do not exist before opset 15",
    ("MelWeightMatrix", 17): "no older operator computes mel filter banks",
    ("Einsum", 12): "no older operator sums over named dimensions",
}
"""Map from (operator, version) to the reason why a node of that version cannot be lowered."""

UPWARD_TOO = _by_operator("""
ArgMax 12; ArgMin 12; Attention 25; AveragePool 19; BitShift 28; Cast 13 19 21 23 24 25 28; CastLike 19 21 23 24 25;
Constant 12; ConstantOfShape 20; DequantizeLinear 13 19 21 23 24 25 28; GRU 14; GatherND 12; LSTM 14; LpPool 18;
Max 12; Min 12; Mod 28; OptionalGetElement 18; OptionalHasElement 18; Pad 18 19; QuantizeLinear 13 19 21 23 24 25 28;
RNN 14; Range 27; ReduceMax 20; ReduceMin 20; Reshape 14; Resize 18 19; ScatterElements 16 18; ScatterND 16 18;
Shape 15; SpaceToDepth 28
""")
"""Map from an operator to its versions that changed more than types, but not the meaning of nodes of the older one."""


def relabels_upward(op_type: str, since: int) -> bool:
    """Return whether each node of the version before ``since`` computes the same at ``since``, without a change."""
    return since in (*WIDENED.get(op_type, ()), *UPWARD_TOO.get(op_type, ()))


def handling_of(op_type: str, since: int) -> Handling:
    """Return how a node of version ``since`` is lowered to the version before; ``none`` if there is no way yet.

    ``relabel``: unchanged. ``step``: a rewrite of ``STEPS``. ``body``: ONNX's function body. ``refuse``: an error.
    """
    if (op_type, since) in REFUSED:
        return "refuse"
    if (op_type, since) in STEPS:
        return "step"
    if since in WIDENED.get(op_type, ()):
        return "relabel"
    schema = schema_at(op_type, since)
    return "body" if schema is not None and has_body(schema) else "none"


def unhandled() -> list[str]:
    """The versions above ``OLDEST`` that the tables do not cover, as ``"Operator version"``; empty if none."""
    return [
        f"{name} {since}"
        for name, versions in since_versions().items()
        for since in versions
        if OLDEST < since <= NEWEST and schema_at(name, since) is not None and handling_of(name, since) == "none"
    ]
