"""Levels of an image are numbers; classes and indices are not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from dmlprep.graph.model import Model
from dmlprep.metrics import find_tolerance, integer_images, measure

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
FP16 = find_tolerance("fp16-cpu")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("g (float[2, 3] x) => (uint8[3, 2] y) { s = Sigmoid(x) c = Cast<to=2>(s) y = Transpose(c) }", {"y"}),
        ("g (uint8[2, 3] x) => (uint8[2, 3] y) { f = Cast<to=1>(x) h = Mul(f, f) y = Cast<to=2>(h) }", {"y"}),
        (
            "g (float[2, 3] x) => (uint8[n, m] y) { s = Shape(x) r = Reshape(x, s) t = Tanh(r) c = Cast<to=2>(t) "
            "y = Reshape(c, s) }",
            {"y"},
        ),
        ("g (float[2, 3] x) => (float[2, 3] y) { h = Mul(x, x) r = Round(h) y = Clip(r) }", {"y"}),
        ("g (float[2, 3] x) => (float[4, 3] y) { r = Floor(x) y = Concat<axis=0>(r, x) }", set()),
        ("g (float[2, 3] x, float s, uint8 z) => (uint8[2, 3] y) { h = Mul(x, x) y = QuantizeLinear(h, s, z) }", {"y"}),
        ("g (float[2, 3] x) => (int64[2, 3] y) { y = Cast<to=7>(x) }", set()),
        ("g (float[2, 3] x) => (uint8[2, 1] y) { a = ArgMax(x) y = Cast<to=2>(a) }", set()),
        ("g (float[2, 3] x) => (uint8[1, 3] y) { a = ArgMax(x) f = Cast<to=1>(a) y = Cast<to=2>(f) }", set()),
    ],
)
def test_which_integers_are_images(text: str, found: set[str]) -> None:
    model = Model(ir.from_proto(parser.parse_model(_HEAD + text)))
    assert integer_images(model) == found


def test_levels_may_be_a_step_away() -> None:
    want = np.arange(200, dtype=np.uint8)
    assert not measure("y", want, want + 1, FP16).passed
    near = measure("y", want, want + 1, FP16, integer_image=True)
    assert near.passed
    assert near.max_abs == pytest.approx(1.0)
    assert not measure("y", want, want + 9, FP16, integer_image=True).passed
    assert not measure("y", want, want + 1, find_tolerance("fp32-cpu"), integer_image=True).passed


def test_what_the_tolerance_allows_before_rounding_may_round_to_the_next_level() -> None:
    rng, fp32 = np.random.default_rng(0), find_tolerance("fp32-cpu")
    exact = rng.uniform(0, 255, 200_000)
    for kind in (np.uint8, np.float32):
        want = np.round(exact).astype(kind)
        near = measure("y", want, np.round(exact + 5e-4).astype(kind), fp32, integer_image=True)
        assert near.passed
        assert near.max_abs == pytest.approx(1.0)
        assert near.max_rel < fp32.max_rel
        assert "next level" in near.note
        for wrong in (exact + 0.1, exact * 1.001, np.where(exact < 250, exact, exact - 2)):
            assert not measure("y", want, np.round(wrong).astype(kind), fp32, integer_image=True).passed
        one = want.copy()
        one[7] += 2 if one[7] < 200 else -2
        assert not measure("y", want, one, fp32, integer_image=True).passed
    assert not measure("y", np.round(exact), np.round(exact + 5e-4), find_tolerance("exact"), integer_image=True).passed
