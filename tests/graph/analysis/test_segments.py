"""A model run in pieces computes what it computes whole."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from dmlprep.graph.analysis import segments as segments_module
from dmlprep.graph.analysis.segments import run_segments, segments
from dmlprep.graph.model import Model

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 4] x, bool c) => (float[2, 4] y, float[2, 4] mid)
<float[4, 4] w1, float[4, 4] w2, float[4] b = {1.0, 2.0, 3.0, 4.0}>
{
  h = MatMul (x, w1)
  mid = Relu (h)
  t = SplitToSequence <axis = 0> (mid)
  u = ConcatFromSequence <axis = 0> (t)
  p = If (c) <
    then_branch = t1 () => (float[2, 4] q) { q = MatMul (u, w2) },
    else_branch = e1 () => (float[2, 4] r) { r = Add (x, b) }
  >
  v = Add (p, x)
  y = MatMul (v, w1)
}
"""


def model():
    proto = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name in ("w1", "w2"):
        array = rng.standard_normal((4, 4)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    del proto.graph.value_info[:]
    return Model(ir.from_proto(proto))


def run(model, feeds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(ir.to_proto(model.ir).SerializeToString(), options)
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(feeds)), strict=True))


@pytest.mark.parametrize("taken", [True, False])
def test_pieces_give_the_values_of_the_whole(taken):
    whole = model()
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32), "c": np.array(taken)}
    reference = run(whole, feeds)
    calls = []

    def noted(piece, values):
        calls.append(len(piece.ir.graph))
        return run(piece, values)

    result = run_segments(noted, whole, feeds, piece_bytes=64)
    assert len(calls) > 1
    assert sum(calls) == len(whole.ir.graph)
    assert list(result) == ["y", "mid"]
    for name, value in reference.items():
        np.testing.assert_array_equal(value, result[name])


def test_a_model_is_cut_where_it_is_too_large_to_be_whole(monkeypatch):
    whole = model()
    feeds = {"x": np.ones((2, 4), np.float32), "c": np.array(True)}
    calls = []

    def noted(piece, values):
        calls.append(len(piece.ir.graph))
        return {v.name: np.zeros(1) for v in piece.ir.graph.outputs}

    run_segments(noted, whole, feeds)
    assert calls == [len(whole.ir.graph)]
    calls.clear()
    monkeypatch.setattr(segments_module, "WHOLE_BYTES", 64)
    monkeypatch.setattr(segments_module, "PIECE_BYTES", 64)
    run_segments(noted, whole, feeds)
    assert len(calls) > 1


def test_no_sequence_crosses_a_cut():
    cuts = segments(model(), piece_bytes=1)
    assert all("t" not in (*cut.inputs, *cut.outputs) for cut in cuts)


def test_a_small_model_is_one_piece():
    assert len(segments(model())) == 1
