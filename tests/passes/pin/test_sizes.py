"""From the sizes that a user gives to those of the inputs."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dmlprep.core.errors import ModelRefused, UsageError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context
from dmlprep.passes.pin import PinOptions, PinPass


def model(inputs, output="float[n, m] y", body="y = Relu (x)"):
    text = f'<ir_version: 8, opset_import: ["" : 17]>\ng ({inputs}) => ({output}) {{ {body} }}'
    return Model(ir.from_proto(onnx.parser.parse_model(text)))


def pin(m, **options):
    context = Context(find_target())
    PinPass(PinOptions(**options)).run(m, context)
    return [[str(d) for d in v.shape] for v in [*m.ir.graph.inputs, *m.ir.graph.outputs]], context


def test_minus_one_is_no_size():
    m = model("float[batch, 4] x")
    m.ir.graph.inputs[0].shape = ir.Shape([-1, 4])
    shapes, context = pin(m)
    assert context.facts.static is False
    shapes, context = pin(m, sizes={"x:0": 3})
    assert shapes == [["3", "4"]] * 2
    assert context.facts.pinned == {"x:0": 3}


def test_whole_shapes_and_inputs_of_unknown_rank():
    m = model("float[batch, 4] x")
    m.ir.graph.inputs[0].shape = None
    with pytest.raises(UsageError, match="rank of x is unknown"):
        pin(m, sizes={"x:0": 3})
    assert pin(m, shapes={"x": [3, 4]})[0] == [["3", "4"]] * 2
    assert pin(model("float[batch, k] x"), shapes={"x": [3, 4]})[0] == [["3", "4"]] * 2
    with pytest.raises(UsageError, match="2 dimensions, 3 sizes"):
        pin(model("float[batch, k] x"), shapes={"x": [3, 4, 5]})
    with pytest.raises(UsageError, match="no dimension 'z'"):
        pin(model("float[batch, k] x"), shapes={"z": [3, 4]})


@pytest.mark.parametrize("size", [-1, 2**31])
def test_what_is_no_size(size):
    with pytest.raises(UsageError, match="not a size of a dimension"):
        pin(model("float[batch, 4] x"), sizes={"batch": size})


@pytest.mark.parametrize("key", ["x:2", "x:-3", "x:batch", "y:0", "z:0", "", ":", "x:"])
def test_keys_that_name_nothing(key):
    with pytest.raises(UsageError) as caught:
        pin(model("float[batch, 4] x"), sizes={key: 2})
    assert caught.value.code == "DP203"
    assert "x: [batch, 4]" in str(caught.value) or "its dimensions are [batch, 4]" in str(caught.value)


def test_a_name_that_holds_a_colon():
    m = model("float[batch, 4] x")
    m.ir.graph.inputs[0].name = "x:0"
    assert pin(m, sizes={"x:0:0": 2})[0] == [["2", "4"]] * 2


def test_names_of_dynamo():
    shapes, _ = pin(
        model("float[s0, 4] x, float[s1, 4] z, float[t, 4] w", body="a = Concat <axis = 0> (x, z) y = Add (a, w)"),
        sizes={"s0": 2, "s1": 3, "t": 5},
    )
    assert shapes[-1] == ["5", "4"]


def test_an_expression_as_a_dimension_of_an_input():
    m = model("float[past, 4] x, float[seq, 4] z, float[t, 4] w", body="a = Concat <axis = 0> (x, z) y = Add (a, w)")
    m.ir.graph.inputs[2].shape = ir.Shape(["past + seq", 4])
    assert pin(m, sizes={"past": 2, "seq": 3})[0][2:] == [["5", "4"]] * 2


def test_a_shape_of_zero():
    assert pin(model("float[past, 4] x"), sizes={"past": 0})[0] == [["0", "4"]] * 2


def test_static_is_promised_where_it_is_demanded():
    assert PinPass(PinOptions()).promises() == frozenset()
    assert PinPass(PinOptions(require_static=True)).promises() == {"static"}
    m = model("float[batch, 4] x")
    m.ir.graph.inputs[0].shape = None
    with pytest.raises(ModelRefused, match="input x has no known rank"):
        pin(m, require_static=True)


def test_what_stands_for_no_name_is_pinned_by_what_it_says():
    both = "float[None, 4] x, float[None, 4] z"
    shapes, _ = pin(model(both, "float[n, 4] y", "y = Add (x, z)"), sizes={"None": 2})
    assert shapes == [["2", "4"]] * 3
    shapes, _ = pin(model(both, "float[n, 4] y", "y = Add (x, z)"), sizes={"None": 2, "x:0": 2})
    assert shapes == [["2", "4"]] * 3
    with pytest.raises(UsageError, match="has two sizes") as caught:
        pin(model(both, "float[n, 4] y", "y = Add (x, z)"), sizes={"None": 2, "x:0": 3})
    assert caught.value.code == "DP204"
    with pytest.raises(UsageError, match="no dimension '-1'"):
        pin(model(both, "float[n, 4] y", "y = Add (x, z)"), sizes={"-1": 2})
