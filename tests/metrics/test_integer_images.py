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
