"""A model that was asked to be FP16 and is not says so."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser

from dmlprep.model import Model
from dmlprep.passes import Context, make_pass
from dmlprep.target import find_target

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 4] x) => (float[2, 4] y) <float[4] b = {1, 2, 3, 4}> { a = Add(x, b)  y = Relu(a) }"""


@pytest.mark.parametrize(("keep", "says"), [(["Add", "Relu"], True), ([], False)])
def test_nothing_converted_is_a_finding(keep: list[str], says: bool) -> None:
    model = Model(ir.from_proto(parser.parse_model(_TEXT)))
    context = Context(find_target())
    make_pass("fp16", {"keep_operators": keep}).run(model, context)
    assert any(f.code == "DP406" for f in context.findings) == says
