"""A value that is listed twice among the outputs stays listed twice, under its name."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context, make_pass

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 4] x) => (float[2, 4] y) <float[4] b = {1, 2, 3, 4}> { a = Add(x, b)  y = Relu(a) }"""


@pytest.mark.parametrize("keep_io", [True, False])
def test_doubled_output(keep_io: bool) -> None:
    model = Model(ir.from_proto(parser.parse_model(_TEXT)))
    model.ir.graph.outputs.append(model.ir.graph.outputs[0])
    make_pass("fp16", {"keep_io": keep_io}).run(model, Context(find_target()))
    first, second = model.ir.graph.outputs
    assert first is second
    assert first.name == "y"
    assert first.dtype == (ir.DataType.FLOAT if keep_io else ir.DataType.FLOAT16)
