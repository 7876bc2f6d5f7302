"""With ``half_weights`` a large weight that nodes in FP32 and in FP16 share is stored once, in FP16."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from dmlprep.graph.model import Model
from dmlprep.passes.precision import convert, emulate
from tests.passes.precision.graphs import model_of, relative, run

RNG = np.random.default_rng(7)
FEED = {"x": RNG.standard_normal((4, 64)).astype(np.float32)}
ENDS = "(float[4,64] x) => (float[4,64] y)"
CHAIN = "a = MatMul(x, w) b = MatMul(a, w) y = MatMul(b, w)"


def _model(body: str = CHAIN, ends: str = ENDS, size: int = 64) -> Model:
    weights = {"w": (RNG.standard_normal((size, size)) / 8).astype(np.float32)}
    return model_of(f'<ir_version: 8, opset_import: ["" : 17]> g {ends} {{ {body} }}', weights)


def _converted(model: Model, *kept: str, half: bool = True) -> Model:
    found = model.copy()
    keep = {id(n): "asked for" for n in found.ir.graph if n.outputs[0].name in kept}
    convert(found, None, keep=keep, half_weights=half)
    return found


def _stored(model: Model) -> list[str]:
    return sorted(v.const_value.dtype.name for v in model.ir.graph.initializers.values() if v.const_value is not None)


def test_stored_once_in_fp16():
    model = _model()
    found = _converted(model, "b")
    assert _stored(found) == ["FLOAT16"]
    reader = next(n for n in found.ir.graph if n.outputs[0].name == "b" or n.outputs[0].name == "b_fp32")
    assert [v.dtype for v in reader.inputs if v is not None] == [ir.DataType.FLOAT] * 2
    want = run(model, FEED)["y"]
    assert relative(run(found, FEED)["y"], want) < 2e-3
    assert relative(run(emulate(found), FEED)["y"], want) < 2e-3


def test_in_both_unless_asked_for():
    assert _stored(_converted(_model(), "b", half=False)) == ["FLOAT", "FLOAT16"]


def test_what_loses_nothing_in_fp16_is_stored_once():
    model = _model()
    exact = model.ir.graph.initializers["w"]
    exact.const_value = ir.tensor(exact.const_value.numpy().astype(np.float16).astype(np.float32), name="w")
    found = _converted(model, "b", half=False)
    assert _stored(found) == ["FLOAT16"]
    assert not convert(found, None).changed
    exact.const_value = ir.tensor(exact.const_value.numpy() + np.float32(1e-5), name="w")
    assert _stored(_converted(model, "b", half=False)) == ["FLOAT", "FLOAT16"]


def test_again_changes_nothing():
    found = _converted(_model(), "b")
    before = found.snapshot()
    assert not convert(found, None, half_weights=True).changed
    assert found.snapshot().same_as(before)


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        pytest.param(_model(size=32, ends="(float[4,32] x) => (float[4,32] y)"), "b", id="small"),
        pytest.param(_model("a = MatMul(x, w) b = Sin(w) y = MatMul(a, b)"), "b", id="no factor"),
        pytest.param(_model("a = MatMul(x, w) b = MatMul(w, w) y = MatMul(a, b)"), "b", id="left operand"),
        pytest.param(_model(ends="(float[4,64] x) => (float[4,64] y, float[64,64] w)"), "b", id="output"),
        pytest.param(
            _model("zero = Constant<value_int = 0>() p = CumSum(x, zero) t = MatMul(p, w) s = Sin(t) y = MatMul(s, w)"),
            "",
            id="by the policy",
        ),
    ],
)
def test_stored_in_both(model, kept):
    assert "FLOAT" in _stored(_converted(model, kept))
