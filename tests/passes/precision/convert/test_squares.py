"""A kept square, mean and root as one sum of squares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlprep.directml.targets import find_target
from dmlprep.graph.model.walk import label
from dmlprep.passes import Context, make_pass
from dmlprep.passes.precision import convert, emulate
from dmlprep.passes.precision.convert.squares import sum_squares
from tests.passes.precision.graphs import InProcess, feeds_for, model_of, relative, run


def _text(size: int, opset: int, square: str) -> str:
    mean = "ReduceMean<axes = [-1]>(s)" if opset < 18 else "ReduceMean(s, last)"
    return (
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[3,{size}] x) => (float[3,{size}] y) '
        f"{{ [m] b = Mul(x, k) [pw] s = {square} [rv] v = {mean} [a] e = Add(v, eps) [q] r = Sqrt(e) "
        "[dv] y = Div(b, r) }"
    )


_WEIGHTS = {
    "k": np.float32(1000), "two": np.float32(2), "eps": np.float32(1e-5), "last": np.array([-1]),
}  # fmt: skip
_KEPT = ("pw", "rv", "a")


def _rewritten(text: str, kept=_KEPT):
    model = model_of(text, _WEIGHTS)
    keep = {id(n): "user" for n in model.ir.graph if label(n) in kept}
    return model, keep, sum_squares(model, keep, find_target(), "fast")


@settings(deadline=None, max_examples=40)
@given(
    size=st.integers(1, 70),
    opset=st.sampled_from([13, 17, 18, 21]),
    square=st.sampled_from(["Pow(b, two)", "Mul(b, b)"]),
    scale=st.sampled_from([1e-6, 1e-3, 1.0, 30.0]),
)
def test_the_same_in_fp32_and_right_in_fp16(size, opset, square, scale):
    text = _text(size, opset, square)
    feed = {"x": scale * np.random.default_rng(size).standard_normal((3, size)).astype(np.float32)}
    want = run(model_of(text, _WEIGHTS), feed)["y"]
    model, keep, changed = _rewritten(text)
    assert changed
    assert relative(want, run(model, feed)["y"]) < 1e-6
    done = convert(model, find_target(), level="fast", keep=keep)
    assert set(done.kept_fp32) == {"rv", "a", "q"}
    assert relative(want, run(model, feed)["y"]) < 4e-3


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (("Pow(b, two)", "Pow(b, k)"), _KEPT),  # no square
        (("Sqrt(e)", "Exp(e)"), _KEPT),  # no root
        (("Add(v, eps)", "Add(v, v)"), _KEPT),
        (("Div(b, r)", "Div(s, r)"), _KEPT),  # the square is read elsewhere
        (("float[3,16] x", "float[3,n] x"), _KEPT),  # how many are added is not known
        (("", ""), ("pw", "rv")),
        (("", ""), ("pw", "rv", "a", "m")),  # what is squared stays in FP32: no node would be saved
    ],
)
def test_what_is_left_alone(change, kept):
    text = _text(16, 17, "Pow(b, two)").replace(*change)
    _, _, changed = _rewritten(text, kept)
    assert not changed


def test_squares_of_doubles_are_left_alone():
    weights = {name: w if name == "last" else np.float64(w) for name, w in _WEIGHTS.items()}
    model = model_of(_text(16, 17, "Pow(b, two)").replace("float[", "double["), weights)
    keep = {id(n): "user" for n in model.ir.graph if label(n) in _KEPT}
    assert not sum_squares(model, keep, find_target(), "fast")


_RMS = {
    "weighted": "[dv] d = Div(b, r) y = Mul(d, w)",  # an RMSNormalization: ONNX Runtime fuses it as it is
    "lone": "[dv] y = Div(b, r)",
}


@pytest.mark.parametrize(
    ("scale", "end", "islands"),
    [(1e3, "lone", ["pw", "rv", "a"]), (1e-3, "lone", []), (1e3, "weighted", [])],
)
def test_the_policy_keeps_one_node_less_where_squares_leave_the_range(scale, end, islands):
    text = _text(64, 17, "Pow(b, two)").replace("[dv] y = Div(b, r)", _RMS[end])
    weights = _WEIGHTS | {"k": np.float32(scale), "w": np.ones(64, np.float32)}
    model = model_of(text, weights)
    feeds = [feeds_for(model, seed) for seed in range(2)]
    want = [run(model, feed)["y"] for feed in feeds]
    context = Context(find_target(), runner=InProcess(feeds))
    make_pass("fp16", {"islands": "auto", "tolerance": 0.002}).run(model, context)
    assert list(context.facts.islands) == islands
    assert len(context.facts.kept_fp32) == (3 if islands else 4)
    shadow = emulate(model)
    for one, feed in zip(want, feeds, strict=True):
        assert relative(one, run(shadow, feed)["y"]) < 1e-3
