"""Nodes that a user names: by name, operator, pattern, or a stretch between two values."""

from __future__ import annotations

import pytest

from dmlprep.core.errors import RecipeError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model.walk import nodes
from dmlprep.passes.precision import Selection, convert, select
from tests.passes.precision.graphs import model_of
from tests.passes.precision.traps import W

CHAIN = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) '
    "{ [one] a = MatMul(x, w) [two] b = Relu(a) [three] c = MatMul(b, w) d = Neg(c) [five] y = Tanh(d) }"
)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(nodes=("two",)), {"two"}),
        (Selection(nodes=("Neg(d)",)), {"Neg(d)", "five"}),  # Tanh brings it into range before the cast
        (Selection(operators=("MatMul",)), {"one", "three"}),
        (Selection(patterns=("^t",)), {"two", "three"}),
        (Selection(between=(("a", "c"),)), {"two", "three"}),
        (Selection(between=(("x", "b"),)), {"one", "two"}),
    ],
)
def test_selection(selection, expected):
    model = model_of(CHAIN, W)
    done = convert(model, find_target(), keep=select(model, selection, "keep"))
    assert set(done.kept_fp32) == expected


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        (Selection(nodes=("twoo",)), "did you mean 'two'"),
        (Selection(patterns=("(",)), "not a regular expression"),
        (Selection(between=(("a", "nowhere"),)), "no value 'nowhere'"),
        (Selection(between=(("d", "a"),)), "no node is between"),
    ],
)
def test_selection_refuses(selection, says):
    with pytest.raises(RecipeError, match=says):
        select(model_of(CHAIN, W), selection, "keep")


IF = """<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[2] x) => (float[2] y) {
  h = Neg (x)
  [choice] t = If (c) < then_branch = a () => (float[2] p) { [root] p = Sqrt (h) },
                        else_branch = b () => (float[2] q) { [root] q = Exp (x) } >
  y = Relu (t)
}"""


@pytest.mark.parametrize(
    ("selection", "operators"),
    [
        (Selection(nodes=("choice/else_branch/root",)), ["Exp"]),
        (Selection(nodes=("root",)), ["Exp", "Sqrt"]),
        (Selection(operators=("Sqrt",)), ["Sqrt"]),
        # What a body reads from outside is on the way as well: the node that holds the body stands for it.
        (Selection(between=(("h", "y"),)), ["If", "Relu"]),
    ],
)
def test_nodes_of_bodies(selection, operators):
    model = model_of(IF)
    found = select(model, selection, "keep")
    assert sorted(node.op_type for node in nodes(model.ir) if id(node) in found) == operators


def test_an_operator_that_the_model_does_not_have_is_no_mistake():
    assert select(model_of(CHAIN, W), Selection(operators=("Softmax",)), "keep") == {}
    with pytest.raises(RecipeError, match="no operator 'Sofmax'") as caught:
        select(model_of(CHAIN, W), Selection(operators=("Sofmax",)), "keep")
    assert "Softmax" in caught.value.fix
