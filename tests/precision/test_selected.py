"""What follows from a selecting operator cannot be compared element by element."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx import parser

from dmlprep.model import Model
from dmlprep.model.ranked import Ranked
from dmlprep.precision import convert, find_islands
from dmlprep.precision.selected import ranked_error, sized_by_data
from dmlprep.targets import find_target
from tests.precision.graphs import InProcess

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 4] x) => (float[2, 4] y, float[n] z) {
  y = Relu(x)  i = NonZero(y)  t = Transpose(i)  z = GatherND(y, t)
}"""


def test_what_follows_from_a_selection() -> None:
    assert sized_by_data(Model(ir.from_proto(parser.parse_model(_TEXT)))) == {"i", "t", "z"}


def _ranking(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.random((2, 20)).astype(np.float32), axis=1)[:, ::-1]
    return {"s": scores, "b": rng.random((2, 20, 4)).astype(np.float32) * 100, "c": rng.integers(0, 9, (2, 20))}


RANKED = Ranked(("s", "b", "c"), 20)


def test_rows_in_another_order_are_no_error() -> None:
    want = _ranking()
    order = np.random.default_rng(1).permutation(20)
    got = {name: array[:, order] for name, array in want.items()}
    got["b"] = got["b"] + np.float32(0.1)
    assert 0 < ranked_error(want, got, RANKED) < 0.002


def test_rows_of_another_batch_or_label_are_an_error() -> None:
    want = _ranking()
    assert ranked_error(want, {name: array[::-1] for name, array in want.items()}, RANKED) > 0.1
    assert ranked_error(want, want | {"c": want["c"] + 100}, RANKED) == np.inf
    assert ranked_error(want, want | {"b": want["b"] * np.float32(np.nan)}, RANKED) == np.inf


def test_a_tenth_of_the_rows_may_be_others() -> None:
    want = _ranking()
    few, many = want["b"].copy(), want["b"].copy()
    few[:, -2:] += 1000
    many[:, -3:] += 1000
    assert ranked_error(want, want | {"b": few}, RANKED) == 0.0
    assert ranked_error(want, want | {"b": many}, RANKED) > 1


_ENDS_IN_TOPK = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 40, 16] x) => (float[1, 30] v, float[1, 30, 4] z)
<int64[1] k = {30}, int64[1] two = {2}, int64[3] wide = {1, 30, 4}> {
  s = MatMul(x, ws)  r = Squeeze(s, two)  p = Sigmoid(r)  b = MatMul(x, wb)
  v, i = TopK(p, k)  u = Unsqueeze(i, two)  e = Expand(u, wide)  z = GatherElements<axis = 1>(b, e)
}"""


def test_scores_as_good_as_equal_cost_no_island() -> None:
    proto = parser.parse_model(_ENDS_IN_TOPK)
    rng = np.random.default_rng(5)
    weights = {"ws": rng.standard_normal((16, 1)) * 2e-3, "wb": rng.standard_normal((16, 4))}
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    feeds = [{"x": rng.standard_normal((1, 40, 16)).astype(np.float32)}]
    model = Model(ir.from_proto(proto))

    def half(copy: Model, keep: Mapping[int, str]) -> object:
        return convert(copy, find_target(), keep=keep)

    found = find_islands(model, half, InProcess(feeds), feeds, 0.01)
    assert found.met
    assert not found.keep
    assert len(found.trials) == 1
