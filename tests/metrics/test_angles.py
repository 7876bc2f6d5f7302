"""Angles: a whole turn is no error, where the graph computes an Atan2."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from dmlprep.graph.model import Model
from dmlprep.metrics import Comparison, find_tolerance, output_error, output_groups
from tests.parity.comparing import compare
from tests.parity.models import parse

_ATAN2 = """g (float[n] y, float[n] x) => (float[n] a)
<float pi = {3.14159274}, float zero = {0.0}, float degrees = {57.29578}, float one = {1.0}, float half = {1.57079633}>
{ s = Div (y, x)  t = Atan (s)  p = Add (t, pi)  m = Sub (t, pi)  up = Greater (y, zero)  left = Less (x, zero)
  q = Where (up, p, m)  r = Where (left, q, t)  %s }"""


@pytest.mark.parametrize(
    ("end", "turn"),
    [
        ("a = Identity (r)", 2 * math.pi),
        ("n = IsNaN (r)  a = Where (n, zero, r)", 2 * math.pi),
        ("d = Mul (degrees, r)  a = Add (d, one)", 360.0),
        ("d = Div (r, pi)  a = Neg (d)", 2.0),
        ("a = Where (up, p, m)", 2 * math.pi),
        ("a = Sin (r)", 0.0),
        ("a = Identity (t)", 0.0),
        ("a = Sub (half, t)", 0.0),
        ("a = Where (left, y, x)", 0.0),
        ("a = Div (one, r)", 0.0),
    ],
)
def test_which_outputs_are_angles(end: str, turn: float) -> None:
    proto = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>' + _ATAN2 % end)
    model = Model(ir.from_proto(proto))
    (group,) = output_groups(model)
    assert (group.kind, group.turn) == ("elements", pytest.approx(turn, rel=1e-6))
    (chosen,) = output_groups(model, {"a": "angle"})
    assert chosen.turn == pytest.approx(turn or 2 * math.pi)
    assert output_groups(model, {"a": "elements"})[0].turn == 0


def test_the_proof_and_the_search_forgive_one_whole_turn_and_nothing_else(tmp_path: Path) -> None:
    path = parse(_ATAN2 % "a = Identity (r)", tmp_path / "m.onnx")
    groups = output_groups(Model.open(path))
    want = np.array([math.pi, -math.pi + 1e-6, 0.5, -2.0], np.float32)
    tolerance = find_tolerance("fp16-cpu")
    for off, passes in (([-2, 2, 0, 0], True), ([-2, 2, 1, 0], False), ([4, 0, 0, 0], False), ([0.5, 0, 0, 0], False)):
        got = want + np.float32(math.pi) * np.array(off, np.float32) + np.float32(1e-3)
        comparison = Comparison(groups, tolerance)
        comparison.add({"a": want}, {"a": got})
        assert comparison.results()[0].passed == passes
        assert (output_error(groups, {"a": want}, {"a": got}) < 1e-2) == passes


def test_a_sign_of_zero_turns_no_angle_into_a_failure(tmp_path: Path) -> None:
    moved = _ATAN2.replace("{ s = Div (y, x)", "{ w = Add (y, e)  s = Div (w, x)").replace("Greater (y,", "Greater (w,")
    original = parse(_ATAN2 % "a = Identity (r)", tmp_path / "a.onnx")
    candidate = parse(moved.replace("<", "<float e = {1e-7}, ", 1) % "a = Identity (r)", tmp_path / "b.onnx")
    feed = {"y": np.array([-5e-8, 1, -1], np.float32), "x": np.array([-1, 1, -1], np.float32)}
    assert compare(original, candidate, [feed]).outcome == "passed"
