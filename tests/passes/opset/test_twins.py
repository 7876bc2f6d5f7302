"""Operators of com.microsoft and ai.onnx.ml without a DirectML kernel become operators that have one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dmlprep import api
from dmlprep.directml.placement import place
from dmlprep.directml.targets import find_target
from dmlprep.passes.opset.opset_pass import OpsetOptions, OpsetPass
from dmlprep.pipeline.placing import context_for
from tests.passes.opset.models import opened, parse, run
from tests.passes.precision.graphs import proto_of

_QUANTIZED = "<float s = {0.03}, uint8 z = {128}, float t = {0.02}> { q = QuantizeLinear (x, s, z)"
_CONV = "(float[1,2,5,5] x, float[3,2,3,3] w, float[3] c"
_ROWS = np.array([[1, -2, 0.5], [0, 0, 0], [-3, -1, -2], [0.2, 7, 0]], np.float32)


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


_CONV_FEEDS = {"x": _floats(1, 2, 5, 5), "w": _floats(3, 2, 3, 3), "c": _floats(3)}
FORMS = {
    **{
        f"conv_{kind}": (
            f"{_CONV}) => (float[1,3,3,3] y) {{ y = com.microsoft.FusedConv <activation = '{kind}'{more}> (x, w, c) }}",
            _CONV_FEEDS,
        )
        for kind, more in {
            "Relu": "",
            "Tanh": "",
            "Sigmoid": "",
            "LeakyRelu": ", activation_params = [0.2]",
            "HardSigmoid": ", activation_params = [0.3, 0.6]",
            "Clip": ", activation_params = [0.0, 0.5]",
        }.items()
    },
    "conv_sum": (
        f"{_CONV}, float[1,3,5,5] m) => (float[1,3,5,5] y)"
        " { y = com.microsoft.FusedConv <activation = 'Relu', pads = [1, 1, 1, 1]> (x, w, c, m) }",
        {**_CONV_FEEDS, "m": _floats(1, 3, 5, 5)},
    ),
    **{
        f"gemm_{kind}": (
            "(float[2,4] x, float[3,4] w, float[3] c) => (float[2,3] y)"
            f" {{ y = com.microsoft.FusedGemm <activation = '{kind}', transB = 1, alpha = 0.5 {more}> (x, w, c) }}",
            {"x": _floats(2, 4), "w": _floats(3, 4), "c": _floats(3)},
        )
        for kind, more in {"Relu": "", "LeakyRelu": ", activation_alpha = 0.3"}.items()
    },
    "grid_sample": (
        "(float[1,2,5,5] x, float[1,4,4,2] g) => (float[1,2,4,4] y)"
        " { y = com.microsoft.GridSample <mode = 'bilinear', padding_mode = 'border', align_corners = 1> (x, g) }",
        {"x": _floats(1, 2, 5, 5), "g": _floats(1, 4, 4, 2)},
    ),
    "trilu": ("(float[4,4] x) => (float[4,4] y) { y = com.microsoft.Trilu <upper = 0> (x) }", {"x": _floats(4, 4)}),
    "pad": (
        "(float[4,3] x) => (float[6,3] y) <int64[1,4] p = {1, 0, 1, 0}, float[1] v = {2.5}>"
        " { y = com.microsoft.Pad (x, p, v) }",
        {"x": _floats(4, 3)},
    ),
    "pad_reflected": (
        "(float[4,3] x) => (float[6,3] y) <int64[4] p = {1, 0, 1, 0}>"
        " { y = com.microsoft.Pad <mode = 'reflect'> (x, p) }",
        {"x": _floats(4, 3)},
    ),
    "gather_nd": (
        "(float[4,3] x) => (float[2] y) <int64[2,2] i = {0, 1, 3, 2}> { y = com.microsoft.GatherND (x, i) }",
        {"x": _floats(4, 3)},
    ),
    "expand_dims": (
        "(float[4,3] x) => (float[4,1,3] y) <int32 a = {1}> { y = com.microsoft.ExpandDims (x, a) }",
        {"x": _floats(4, 3)},
    ),
    "transpose_matmul": (
        "(float[4,3] x, float[4,2] w) => (float[3,2] y) { y = com.microsoft.TransposeMatMul <transA = 1> (x, w) }",
        {"x": _floats(4, 3), "w": _floats(4, 2)},
    ),
    **{
        f"distances_{kind}": (
            f"(float[4,3] x, float[2,3] w) => (float[4,2] y) {{ y = com.microsoft.CDist <metric = '{kind}'> (x, w) }}",
            {"x": _floats(4, 3), "w": 2 - _floats(2, 3)},
        )
        for kind in ("euclidean", "sqeuclidean")
    },
    "quantized_product": (
        f"(float[4,3] x) => (float[4,3] y) {_QUANTIZED} p = com.microsoft.QLinearMul (q, s, z, q, s, z, t, z)"
        " y = DequantizeLinear (p, t, z) }",
        {"x": _floats(4, 3)},
    ),
    "quantized_leaky_relu": (
        f"(float[4,3] x) => (float[4,3] y) {_QUANTIZED}"
        " p = com.microsoft.QLinearLeakyRelu <alpha = 0.1> (q, s, z, t, z)"
        " y = DequantizeLinear (p, t, z) }",
        {"x": _floats(4, 3)},
    ),
    "scaler": (
        "(float[4,3] x) => (float[4,3] y)"
        " { y = ai.onnx.ml.Scaler <offset = [0.5, 0.1, 2.0], scale = [2.0, 3.0, 0.5]> (x) }",
        {"x": _ROWS},
    ),
    "scaler_of_integers": (
        "(int64[4,3] x) => (float[4,3] y) { y = ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]> (x) }",
        {"x": _ROWS.astype(np.int64)},
    ),
    **{
        f"normalizer_{kind}": (
            f"(float[4,3] x) => (float[4,3] y) {{ y = ai.onnx.ml.Normalizer <norm = '{kind}'> (x) }}",
            {"x": _ROWS},
        )
        for kind in ("L1", "L2", "MAX")
    },
    "binarizer": (
        "(float[4,3] x) => (float[4,3] y) { y = ai.onnx.ml.Binarizer <threshold = 0.2> (x) }",
        {"x": _ROWS},
    ),
    "imputer": (
        "(float[4,3] x) => (float[4,3] y)"
        " { y = ai.onnx.ml.Imputer <imputed_value_floats = [1.0, 2.0, 3.0], replaced_value_float = 0.0> (x) }",
        {"x": _ROWS},
    ),
    "imputer_of_one_number": (
        "(float[4,3] x) => (float[4,3] y)"
        " { y = ai.onnx.ml.Imputer <imputed_value_floats = [9.0], replaced_value_float = 7.0> (x) }",
        {"x": _ROWS},
    ),
    "linear_regressor": (
        "(float[4,3] x) => (float[4,2] y) { y = ai.onnx.ml.LinearRegressor"
        " <coefficients = [0.5, 0.1, 2.0, 1.0, -1.0, 0.3], intercepts = [0.3, -2.0], targets = 2> (x) }",
        {"x": _ROWS},
    ),
}


def _model(text: str) -> onnx.ModelProto:
    text = text.replace("'", '"')
    return parse(f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "ai.onnx.ml" : 1]> g {text}')


@pytest.mark.parametrize("name", FORMS)
def test_an_equal_form_runs_on_directml(name: str) -> None:
    text, feeds = FORMS[name]
    target = find_target("ort-1.30")
    model = opened(_model(text))
    assert place(model, target).compute_on_cpu
    assert OpsetPass(OpsetOptions()).run(model, context_for(target))
    assert place(model, target).compute_on_cpu == []
    for want, got in zip(run(_model(text), feeds), run(proto_of(model), feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


_HIDDEN = 5


def _recurrent(columns: bool) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A bidirectional DynamicQuantizeLSTM, whose scales are of directions or of columns, and its LSTM."""
    rng, shape, wide = np.random.default_rng(0), (2, 20) if columns else (2,), (2, 1, -1) if columns else (2, 1, 1)
    stored = {"b": _floats(2, 8 * _HIDDEN), "lengths": np.array([6, 4], np.int32)}
    quantized, exact = dict(stored), dict(stored)
    for name, size in (("w", 4), ("r", _HIDDEN)):
        whole = rng.integers(0, 256, (2, size, 4 * _HIDDEN)).astype(np.uint8)
        scale, zero = rng.uniform(0.002, 0.004, shape).astype(np.float32), np.full(shape, 121, np.uint8)
        quantized |= {name: whole, f"{name}_scale": scale, f"{name}_zero": zero}
        exact[name] = ((whole.astype(np.float32) - 121) * scale.reshape(wide)).transpose(0, 2, 1).copy()
    names = ["x", "w", "r", "b", "lengths", "h", "c", ""]
    scales = ["w_scale", "w_zero", "r_scale", "r_zero"]
    states = (2, 2, _HIDDEN)
    ends = {"x": (6, 2, 4), "h": states, "c": states}, {"y": (6, *states), "yh": states, "yc": states}
    inputs, outputs = ([helper.make_tensor_value_info(n, 1, s) for n, s in end.items()] for end in ends)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]

    def made(op: str, domain: str, given: list[str], arrays: dict[str, np.ndarray]) -> onnx.ModelProto:
        node = helper.make_node(
            op, given, ["y", "yh", "yc"], "n", domain=domain, hidden_size=_HIDDEN, direction="bidirectional"
        )
        tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
        graph = helper.make_graph([node], "g", inputs, outputs, tensors)
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    return made("DynamicQuantizeLSTM", "com.microsoft", names + scales, quantized), made("LSTM", "", names, exact)


@pytest.mark.parametrize("columns", [False, True], ids=["scales of directions", "scales of columns"])
def test_a_quantized_recurrent_layer_is_one_of_dequantized_weights(columns: bool) -> None:
    quantized, exact = _recurrent(columns)
    feeds = {"x": _floats(6, 2, 4), "h": _floats(2, 2, _HIDDEN), "c": _floats(2, 2, _HIDDEN)}
    target = find_target("ort-1.30")
    model = opened(quantized)
    assert place(model, target).compute_on_cpu
    assert OpsetPass(OpsetOptions()).run(model, context_for(target))
    assert place(model, target).compute_on_cpu == []
    for got, want, rounded in zip(*(run(p, feeds) for p in (proto_of(model), exact, quantized)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got, rounded, atol=0.03)  # the CPU rounds data and states to 8 bits


@pytest.mark.parametrize("device", ["cpu", pytest.param("dml", marks=pytest.mark.dml)])
def test_a_quantized_recurrent_layer_is_proved(tmp_path: Path, device: str) -> None:
    """The proof compares with the exact layer: the bound is that of FP32."""
    onnx.save(_recurrent(columns=True)[0], tmp_path / "in.onnx")
    record = api.prepare(tmp_path / "in.onnx", out=tmp_path / "out", device=device)
    assert (record.exit_code, {v.outcome for v in record.verdicts}) == (0, {"passed"}), record.error
    assert "DynamicQuantizeLSTM on dequantized weights" in str(record.verdicts[0].device)


@pytest.mark.parametrize(
    "text",
    [
        "(float[4,3] x) => (float[4,1] y)"
        " { y = ai.onnx.ml.LinearRegressor <coefficients = [0.5, 0.1, 2.0], post_transform = 'LOGISTIC'> (x) }",
        "(float[4,3] x, int32 a) => (float[a,b,c] y) { y = com.microsoft.ExpandDims (x, a) }",
    ],
)
def test_what_has_no_equal_form_stays(text: str) -> None:
    target = find_target("ort-1.30")
    model = opened(_model(text))
    OpsetPass(OpsetOptions()).run(model, context_for(target))
    assert len(place(model, target).compute_on_cpu) == 1
