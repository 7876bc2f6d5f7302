"""A model that was asked to be FP16 and is not says so."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser

from dmlprep.errors import ModelRefused
from dmlprep.model import Model
from dmlprep.passes import Context, make_pass
from dmlprep.targets import find_target
from tests.precision.graphs import InProcess, feeds_for

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 4] x) => (float[2, 4] y) <float[4] b = {1, 2, 3, 4}> { a = Add(x, b)  y = Relu(a) }"""


@pytest.mark.parametrize(("keep", "says"), [(["Add", "Relu"], True), ([], False)])
def test_nothing_converted_is_a_finding(keep: list[str], says: bool) -> None:
    model = Model(ir.from_proto(parser.parse_model(_TEXT)))
    context = Context(find_target())
    make_pass("fp16", {"keep_operators": keep}).run(model, context)
    assert any(f.code == "DP406" for f in context.findings) == says


@pytest.mark.parametrize(("tolerance", "says"), [(0.004, True), (0.2, False)])
def test_a_search_that_leaves_most_in_fp32_says_so(tolerance: float, says: bool) -> None:
    """Every product is cut a little: the error is nowhere, and grows everywhere."""
    lines = "".join(f"v{i + 1} = Mul(v{i}, {'kl'[i % 2]}) " for i in range(60))
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4, 64] v0) => (float[4, 64] v60)'
    model = Model(
        ir.from_proto(parser.parse_model(f"{text} <float k = {{1.5}}, float l = {{0.66650390625}}> {{ {lines} }}"))
    )
    context = Context(find_target(), runner=InProcess([feeds_for(model)]))
    options = {"islands": "auto", "tolerance": tolerance, "rounding": "toward-zero"}
    make_pass("fp16", options).run(model, context)
    found = [f for f in context.findings if f.code == "DP409"]
    assert len(found) == says
    if says:
        assert found[0].facts["kept"] > 30


def test_a_search_that_would_keep_all_of_a_model_refuses_it() -> None:
    """The difference of two like numbers: with any of its operands rounded, nothing of it is right."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4, 64] x) => (float[4, 64] y)
    <float k = {1.0001}> { a = Mul(x, k) y = Sub(a, x) }"""
    model = Model(ir.from_proto(parser.parse_model(text)))
    context = Context(find_target(), runner=InProcess([feeds_for(model)]))
    with pytest.raises(ModelRefused, match="all of the model in FP32") as caught:
        make_pass("fp16", {"islands": "auto", "tolerance": 0.01}).run(model, context)
    assert caught.value.code == "DP404"
