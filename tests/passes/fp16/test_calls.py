"""What a user names in a model-local function, or the call of one, stays named once the function is inlined."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dmlprep.core.errors import RecipeError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import label, nodes
from dmlprep.passes import Context, make_pass

_TEXT = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
g (float[2,16] x) => (float[2,16] y) { a = Neg(x) [first] b = my.Outer(a) y = Relu(b) }
<domain: "my", opset_import: ["" : 17, "my" : 1]> Outer (p) => (o) { q = my.Inner(p) o = Abs(q) }
<domain: "my", opset_import: ["" : 17]> Inner (p) => (o) { q = Neg(p) [soft] o = Softmax(q) }"""


def _kept(options: dict[str, object]) -> set[str]:
    """Operators that compute in FP32."""
    model = Model(ir.from_proto(onnx.parser.parse_model(_TEXT)))
    context = Context(find_target())
    assert make_pass("fp16", options).run(model, context)
    assert not any(n.metadata_props for n in nodes(model.ir))
    return {n.op_type for n in nodes(model.ir) if label(n) in context.facts.kept_fp32}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, set()),
        ({"keep_operators": ["Softmax"]}, {"Softmax"}),
        ({"keep_nodes": ["soft"]}, {"Softmax"}),
        ({"keep_patterns": ["sof"]}, {"Softmax"}),
        ({"keep_nodes": ["first"]}, {"Abs", "Neg", "Softmax"}),
        ({"keep_operators": ["my::Inner"]}, {"Neg", "Softmax"}),
        ({"keep_between": [("a", "b")]}, {"Abs", "Neg", "Softmax"}),
        ({"policy": "safe"}, {"Softmax"}),
        ({"policy": "safe", "convert_nodes": ["soft"]}, set()),
    ],
)
def test_choices_go_into_calls(options: dict[str, object], kept: set[str]) -> None:
    assert _kept(options) == kept


def test_names_of_what_becomes_of_a_call() -> None:
    model = Model(ir.from_proto(onnx.parser.parse_model(_TEXT)))
    context = Context(find_target())
    make_pass("fp16", {"keep_operators": ["Abs"]}).run(model, context)
    (name,) = context.facts.kept_fp32
    assert name not in _TEXT
    assert _kept({"keep_nodes": [name]}) == {"Abs"}


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(RecipeError, match="no node 'third'"):
        _kept({"keep_nodes": ["third"]})
