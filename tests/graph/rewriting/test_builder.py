"""New nodes and constants, and values that take the place of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from dmlprep.graph.rewriting.builder import (
    GraphBuilder,
    as_attribute,
    as_initializer,
    inherit,
    insert_behind,
    move_readers,
    replace_value,
)
from dmlprep.graph.rewriting.names import Names

FLOAT = ir.TensorType(ir.DataType.FLOAT)


def chain() -> tuple[ir.Model, ir.Node, ir.Node]:
    """x -> first -> a -> second -> y; a is an output of the graph, too, and is listed twice."""
    shape = ir.Shape(["N", 2], ["DATA_BATCH", None])
    x = ir.Value(name="x", type=FLOAT, shape=shape.copy())
    a = ir.Value(name="a", type=FLOAT, shape=shape, doc_string="the middle", metadata_props={"key": "1"})
    y = ir.Value(name="y", type=FLOAT, shape=shape.copy())
    first = ir.Node("", "Relu", [x], outputs=[a], name="first")
    second = ir.Node("", "Mul", [a, a], outputs=[y], name="second")
    graph = ir.Graph([x], [y, a, a], nodes=[first, second], opset_imports={"": 17}, name="g")
    return ir.Model(graph, ir_version=10), first, second


def builder_of(model: ir.Model) -> GraphBuilder:
    return GraphBuilder(model.graph, Names(model))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, ir.AttributeType.INT),
        (True, ir.AttributeType.INT),
        (ir.DataType.FLOAT, ir.AttributeType.INT),
        (0.5, ir.AttributeType.FLOAT),
        ("same", ir.AttributeType.STRING),
        ([1, 2], ir.AttributeType.INTS),
        ((1, 2), ir.AttributeType.INTS),
        ([0.5], ir.AttributeType.FLOATS),
        (["a"], ir.AttributeType.STRINGS),
        (ir.tensor([1.0]), ir.AttributeType.TENSOR),
    ],
)
def test_attribute_of_a_python_value(value: Any, kind: ir.AttributeType) -> None:
    made = as_attribute("name", value)
    assert (made.name, made.type) == ("name", kind)
    proto = ir.serde.serialize_attribute(made)
    assert ir.serde.deserialize_attribute(proto).type == kind


def test_an_attribute_stays_the_same_object() -> None:
    given = ir.AttrInt64s("axes", [])
    assert as_attribute("axes", given) is given


@pytest.mark.parametrize("array", [np.array(0.5, np.float16), np.zeros((2, 0), np.int64), np.arange(6).reshape(2, 3).T])
def test_a_constant_keeps_its_type_and_shape(array: np.ndarray[Any, Any]) -> None:
    model, _, _ = chain()
    builder = builder_of(model)
    one, two = builder.constant(array, "a"), builder.constant(array, "c")
    assert (one.name, two.name) == ("a_2", "c")  # the model has a value "a"
    assert set(model.graph.initializers) == {"a_2", "c"}
    assert one.const_value is not None
    assert one.const_value.name == "a_2"
    np.testing.assert_array_equal(one.const_value.numpy(), array)
    assert one.const_value.numpy().dtype == array.dtype
    assert one.type == ir.TensorType(ir.DataType.from_numpy(array.dtype))
    assert one.shape == array.shape


def test_a_constant_is_a_copy() -> None:
    model, _, _ = chain()
    array = np.ones(2, np.float32)
    made = builder_of(model).constant(array, "ones")
    array[0] = 5
    assert made.const_value is not None
    assert made.const_value.numpy().tolist() == [1, 1]


def test_an_initializer_of_a_value_that_exists() -> None:
    model, _, _ = chain()
    value = ir.Value(name="w")
    assert as_initializer(model.graph, value, ir.tensor([[1, 2]], dtype=ir.DataType.INT32)) is value
    assert model.graph.initializers["w"] is value
    assert value.type == ir.TensorType(ir.DataType.INT32)
    assert value.shape == (1, 2)


def test_a_node_is_named_and_stands_in_no_graph() -> None:
    model, first, _ = chain()
    builder = builder_of(model)
    out = builder.new_value("a", FLOAT, first.outputs[0].shape)
    node = builder.new_node("Clip", [model.graph.inputs[0], None], [out], "first", {"min": 0.0})
    assert (node.name, out.name, node.graph) == ("first_2", "a_2", None)
    assert node.attributes["min"].as_float() == 0.0
    assert out.shape == first.outputs[0].shape
    assert out.shape is not first.outputs[0].shape


def test_inherit_takes_what_is_known() -> None:
    _model, first, _ = chain()
    old, new = first.outputs[0], ir.Value(metadata_props={"other": "2"})
    inherit(old, new, "a_before")
    assert (old.name, new.name, new.type, new.doc_string) == ("a_before", "a", FLOAT, "the middle")
    assert new.shape is not None
    assert new.shape is not old.shape
    assert new.shape.get_denotation(0) == "DATA_BATCH"
    assert new.metadata_props == {"key": "1", "other": "2"}


def test_inherit_keeps_what_the_old_value_does_not_say() -> None:
    old, new = ir.Value(name="a"), ir.Value(type=FLOAT, shape=ir.Shape([1]), doc_string="new")
    inherit(old, new, "")
    assert (new.name, new.type, new.shape, new.doc_string) == ("a", FLOAT, ir.Shape([1]), "new")


def test_readers_move_except_some() -> None:
    model, first, second = chain()
    value, new = first.outputs[0], ir.Value(name="new")
    other = ir.Node("", "Neg", [value])
    move_readers(value, new, but=[other])
    assert list(second.inputs) == [new, new]
    assert list(other.inputs) == [value]
    assert list(model.graph.outputs)[1:] == [value, value]


def test_replace_value_puts_nodes_between() -> None:
    model, first, second = chain()
    builder = builder_of(model)
    old, new = first.outputs[0], ir.Value()
    half = builder.new_node("Mul", [old, builder.constant(np.array(0.5, np.float32), "half")], [new], "halved")
    replace_value(old, new, "a_before", [half])
    assert [n.name for n in model.graph] == ["first", "halved", "second"]
    assert half.inputs[0] is old
    assert old.name == "a_before"
    assert list(second.inputs) == [new, new]
    assert new.name == "a"
    assert list(model.graph.outputs)[1:] == [new, new]


def test_replace_value_by_a_constant() -> None:
    model, first, second = chain()
    new = builder_of(model).constant(np.zeros((1, 2), np.float32), "zeros")
    replace_value(first.outputs[0], new, "")
    model.graph.remove(first, safe=True)
    assert list(model.graph.initializers) == ["a"]
    assert list(second.inputs) == [new, new]
    assert new.is_graph_output()


def test_nodes_stand_behind_what_makes_their_operand() -> None:
    model, first, _ = chain()
    graph = model.graph
    insert_behind(first.outputs[0], ir.Node("", "Neg", [first.outputs[0]], name="behind"))
    insert_behind(graph.inputs[0], [ir.Node("", "Neg", [graph.inputs[0]], name=name) for name in ("one", "two")])
    assert [n.name for n in graph] == ["one", "two", "first", "behind", "second"]


def test_a_node_in_an_empty_graph() -> None:
    x = ir.Value(name="x", type=FLOAT)
    graph = ir.Graph([x], [], nodes=[], name="g")
    insert_behind(x, ir.Node("", "Neg", [x], name="only"))
    assert [n.name for n in graph] == ["only"]
