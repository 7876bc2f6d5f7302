"""Random numbers that only a product with 0 reads become zeros, so that a voice repeats itself and is proved."""

from __future__ import annotations

from pathlib import Path

import pytest

import dmlprep
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from tests.parity.models import parse

_VOICE = """g (float[1, 64] x, float[3] scales) => (float[1, 64] y)
<int64 which = {%s}> { k = Gather (scales, which)  n = RandomNormalLike (x)  d = Mul (n, k)
  s = Add (x, d)  t = Tanh (s)  f = NonZero (t)  h = Shape (t)  z = ConstantOfShape (h)  e = Mul (z, s)
  y = Add (t, e) }"""


@pytest.mark.parametrize("recipe", ["@static-fp32", "@vision-fp16"])
def test_a_scale_of_zero_makes_the_original_repeat_itself(tmp_path: Path, recipe: str) -> None:
    path = parse(_VOICE % 2, tmp_path / "m.onnx")
    record = dmlprep.prepare(
        path, out=tmp_path / "out", recipe=recipe, device="cpu", settings={"step.pin.values": {"scales": [0, 1, 0]}}
    )
    assert record.exit_code == 0, record.error
    kinds = {node.op_type for node in nodes(Model.open(tmp_path / "out" / "model.onnx").ir)}
    assert "RandomNormalLike" not in kinds


def test_a_scale_of_one_keeps_the_random_node(tmp_path: Path) -> None:
    path = parse(_VOICE % 1, tmp_path / "m.onnx")
    record = dmlprep.prepare(
        path, out=tmp_path / "out", recipe="@static-fp32", settings={"step.pin.values": {"scales": [0, 1, 0]}}
    )
    assert record.exit_code == 3
    assert "random numbers" in str(record.error)
