"""Two graphs are called the same only where no input can tell them apart."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlprep.graph.analysis.equivalence import compute_the_same
from dmlprep.graph.model import Model
from dmlprep.graph.model.random_ops import draws
from dmlprep.graph.model.walk import nodes
from tests.fixtures_index import FIXTURES

IO = "(float[2,8] x, float[2,8] z) => (float[2,8] y)"


def parsed(body, io=IO, *, initializers=(), infos=(), opset=17):
    """A model from ONNX text: the nodes and what they are between."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g {io} {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(initializers)
    proto.graph.value_info.extend(infos)
    return Model(ir.from_proto(proto))


def constant(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype), name)


ONES, ZEROS = constant("ones", np.ones(8)), constant("zeros", np.zeros(8))


@pytest.mark.parametrize(
    ("one", "other", "weights"),
    [
        ("y = Add(x, z)", "y = Add(x, z)", []),
        ("a = Relu(x) b = Neg(z) y = Add(a, b)", "q = Neg(z) p = Relu(x) y = Add(p, q)", []),
        ("a = Relu(x) b = Relu(x) y = Add(a, b)", "a = Relu(x) y = Add(a, a)", []),
        ("a = Relu(x) b = Exp(z) y = Neg(a)", "a = Relu(x) y = Neg(a)", []),
        ("a = Identity(x) b = Relu(a) y = Identity(b)", "y = Relu(x)", []),
        ("a = Mul(x, ones) y = Relu(a)", "y = Relu(x)", [ONES]),
        ("a = Mul(ones, x) b = Div(a, ones) y = Relu(b)", "y = Relu(x)", [ONES]),
        ("a = Add(zeros, x) b = Sub(a, zeros) y = Relu(b)", "y = Relu(x)", [ZEROS]),
        ("a = Cast<to=1>(x) y = Relu(a)", "y = Relu(x)", []),
        ("s = Constant<value_ints=[2, 8]>() a = Reshape(x, s) y = Relu(a)", "y = Relu(x)", []),
        (
            "s = Constant<value_ints=[4, 4]>() t = Constant<value_ints=[2, 8]>() a = Reshape(x, s) b = Reshape(a, t) "
            "y = Relu(b)",
            "y = Relu(x)",
            [],
        ),
        ("s = Constant<value_ints=[2, 8]>() a = Expand(x, s) y = Relu(a)", "y = Relu(x)", []),
        ("a = Concat<axis=0>(x) y = Relu(a)", "y = Relu(x)", []),
        (
            "a = Add(ones, ones) y = Mul(x, a)",
            "c = Constant<value_float=2.0>() a = Expand(c, s) y = Mul(x, a)",
            [ONES, constant("s", [8], np.int64)],
        ),
    ],
)
def test_equal_graphs(one, other, weights):
    a, b = parsed(one, initializers=weights), parsed(other, initializers=weights)
    assert compute_the_same(a, b)
    assert compute_the_same(b, a)


@pytest.mark.parametrize(
    ("one", "other", "weights"),
    [
        ("y = Sub(x, z)", "y = Sub(z, x)", []),
        ("y = Add(x, z)", "y = Mul(x, z)", []),
        ("y = LeakyRelu<alpha=0.1>(x)", "y = LeakyRelu<alpha=0.2>(x)", []),
        ("y = Mul(x, ones)", "y = Relu(x)", [ONES]),
        ("a = Mul(x, almost) y = Relu(a)", "y = Relu(x)", [constant("almost", [1] * 7 + [1 + 2**-23])]),
        ("a = Div(ones, x) y = Relu(a)", "y = Relu(x)", [ONES]),
        ("a = Sub(zeros, x) y = Relu(a)", "y = Relu(x)", [ZEROS]),
        ("a = Cast<to=10>(x) b = Cast<to=1>(a) y = Relu(b)", "y = Relu(x)", []),
        ("a, b = Split<axis=1>(x, s) y = Concat<axis=1>(a, b)", "a, b = Split<axis=1>(x, s) y = Concat<axis=1>(b, a)",
         [constant("s", [4, 4], np.int64)]),
        ("c = Constant<value_float=0.1>() y = Mul(x, c)", "c = Constant<value_float=0.1000001>() y = Mul(x, c)", []),
        ("c = Constant<value_float=0.0>() y = Max(x, c)", "c = Constant<value_float=-0.0>() y = Max(x, c)", []),
        ("y = RandomNormalLike(x)", "y = RandomNormalLike(x)", []),
    ],
)  # fmt: skip
def test_other_graphs(one, other, weights):
    a, b = parsed(one, initializers=weights), parsed(other, initializers=weights)
    assert not compute_the_same(a, b)
    assert not compute_the_same(b, a)


def test_a_product_with_ones_that_broadcasts_is_no_identity():
    io = "(float[1,8] x) => (float[y0,y1] y)"
    ones = constant("ones", np.ones((2, 1)))
    assert not compute_the_same(
        parsed("a = Mul(x, ones) y = Relu(a)", io, initializers=[ones]), parsed("y = Relu(x)", io)
    )


def test_a_free_size_proves_no_shape():
    io = "(float[n,8] x) => (float[m,8] y)"
    one = constant("one", np.ones((2, 8)))  # x of one row becomes two
    assert not compute_the_same(
        parsed("a = Mul(x, one) y = Relu(a)", io, initializers=[one]), parsed("y = Relu(x)", io)
    )


def test_what_a_model_says_of_shapes_is_not_believed():
    io, said = "(float[1,8] x) => (float[1,8] y)", helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 8])
    body = "a = Unknown.domain.Op(x) b = Mul(a, ones) y = Relu(b)".replace("Unknown.domain.Op", "my.Op")
    other = "a = my.Op(x) y = Relu(a)"

    def model(text):
        proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g {io} {{ {text} }}')
        proto.graph.initializer.append(constant("ones", np.ones((4, 8))))
        proto.graph.value_info.append(said)
        return Model(ir.from_proto(proto))

    assert not compute_the_same(model(body), model(other))


def test_bodies_count_whatever_their_values_are_called():
    def branches(then, name="t"):
        body = f"y = If (c) <then_branch = g1 () => (float[2,8] {name}) {{ {name} = {then} }}, "
        return body + "else_branch = g2 () => (float[2,8] e) { e = Neg(x) }>"

    io = "(float[2,8] x, bool c) => (float[2,8] y)"
    assert compute_the_same(parsed(branches("Relu(x)"), io), parsed(branches("Relu(x)", "u"), io))
    assert not compute_the_same(parsed(branches("Relu(x)"), io), parsed(branches("Exp(x)"), io))


def test_a_default_that_a_caller_may_replace_is_no_constant():
    io = "(float[2,8] x, float[8] ones) => (float[2,8] y)"
    assert not compute_the_same(
        parsed("y = Mul(x, ones)", io, initializers=[ONES]), parsed("y = Identity(x)", io, initializers=[ONES])
    )


def test_no_initial_state_of_a_recurrent_layer_is_zero():
    io = "(float[3,1,4] x, float[1,5,4] w, float[1,5,5] r) => (float[3,1,1,5] y)"
    zero, small = constant("h", np.zeros((1, 1, 5))), constant("h", np.full((1, 1, 5), 1e-30))
    given, bare = "y = RNN<hidden_size=5>(x, w, r, , , h)", "y = RNN<hidden_size=5>(x, w, r)"
    assert compute_the_same(parsed(given, io, initializers=[zero]), parsed(bare, io))
    assert not compute_the_same(parsed(given, io, initializers=[small]), parsed(bare, io))


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f.name)
def test_a_fixture_equals_its_copy_and_none_with_another_number(fixture):
    model = Model.open(fixture.path)
    random = any(draws(node) for node in nodes(model.ir))
    defaults = model.ir.ir_version >= 4 and any(v.name in model.ir.graph.initializers for v in model.ir.graph.inputs)
    assert compute_the_same(model, model.copy()) is not (random or defaults)
    other = model.copy()
    name, value = next(
        (n, v) for n, v in other.ir.graph.initializers.items() if v.const_value.dtype.is_floating_point()
    )
    changed = value.const_value.numpy().copy()
    changed.reshape(-1)[0] += 0.5
    other.ir.graph.initializers[name].const_value = ir.Tensor(changed, name=name)
    assert not compute_the_same(model, other)
