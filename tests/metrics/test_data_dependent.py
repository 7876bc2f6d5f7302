"""What follows from a selecting operator cannot be compared element by element."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx import parser

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.metrics import data_dependent
from dmlprep.passes.precision import Setting, convert, find_islands
from tests.passes.precision.graphs import InProcess

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 4] x) => (float[2, 4] y, float[n] z) {
  y = Relu(x)  i = NonZero(y)  t = Transpose(i)  z = GatherND(y, t)
}"""


def test_what_follows_from_a_selection() -> None:
    assert data_dependent(Model(ir.from_proto(parser.parse_model(_TEXT)))) == {"i", "t", "z"}


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

    found = find_islands(model, half, InProcess(feeds), feeds, Setting(0.01))
    assert found.met
    assert not found.keep
    assert len(found.trials) == 1
