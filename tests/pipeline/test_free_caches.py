"""Decoders whose cache grows from nothing, as today's exporters write them, run on DirectML without a pin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from dmlprep import api

_DECODER = """<ir_version: 10, opset_import: ["" : 18]>
decoder (float[batch, seq, 32] x, float[batch, 4, past, 8] past_k)
    => (float[batch, seq, 32] y, float[batch, 4, total, 8] present_k)
<int64[1] rest = {-1}, int64[1] size = {8}> {
  b = Shape <start = 0, end = 1> (x)
  s = Shape <start = 1, end = 2> (x)
  heads = Concat <axis = 0> (b, s, rest, size)
  q0 = MatMul (x, wq)
  q1 = Reshape <allowzero = 1> (q0, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (q1)
  k0 = MatMul (x, wk)
  k1 = Reshape <allowzero = 1> (k0, heads)
  k = Transpose <perm = [0, 2, 1, 3]> (k1)
  present_k = Concat <axis = 2> (past_k, k)
  turned = Transpose <perm = [0, 1, 3, 2]> (present_k)
  scores = MatMul (q, turned)
  shares = Softmax <axis = -1> (scores)
  mixed = MatMul (shares, present_k)
  back = Transpose <perm = [0, 2, 1, 3]> (mixed)
  flat = Concat <axis = 0> (b, s, rest)
  y = Reshape <allowzero = 1> (back, flat)
}"""


@pytest.mark.parametrize("device", ["cpu", pytest.param("dml", marks=pytest.mark.dml)])
def test_a_cache_grows_from_nothing(tmp_path: Path, device: str) -> None:
    model, rng = parser.parse_model(_DECODER), np.random.default_rng(0)
    weights = (rng.standard_normal((32, 32)).astype(np.float32) * 0.2 for _ in "qk")
    model.graph.initializer.extend(map(numpy_helper.from_array, weights, ("wq", "wk")))
    onnx.save(model, tmp_path / "in.onnx")
    feeds = []
    for name, (batch, tokens, past) in {"prompt": (1, 5, 0), "next": (2, 1, 6)}.items():
        shapes = {"x": (batch, tokens, 32), "past_k": (batch, 4, past, 8)}
        arrays = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
        np.savez(tmp_path / f"{name}.npz", **arrays)  # type: ignore[arg-type]
        feeds.append(tmp_path / f"{name}.npz")
    record = api.prepare(tmp_path / "in.onnx", out=tmp_path / "out", device=device, feeds=feeds)
    assert record.exit_code == 0, record.error
    assert {v.outcome for v in record.verdicts} == {"passed"}
    made = onnx.load(tmp_path / "out" / "model.onnx")
    assert not any(a.name == "allowzero" for n in made.graph.node for a in n.attribute)
