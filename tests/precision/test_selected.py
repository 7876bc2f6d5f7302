"""What follows from a selecting operator cannot be compared element by element."""

from __future__ import annotations

import onnx_ir as ir
from onnx import parser

from dmlprep.model import Model
from dmlprep.precision.selected import sized_by_data

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 4] x) => (float[2, 4] y, float[n] z) {
  y = Relu(x)  i = NonZero(y)  t = Transpose(i)  z = GatherND(y, t)
}"""


def test_what_follows_from_a_selection() -> None:
    assert sized_by_data(Model(ir.from_proto(parser.parse_model(_TEXT)))) == {"i", "t", "z"}
