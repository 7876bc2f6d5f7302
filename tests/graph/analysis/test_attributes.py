"""Values that nodes hold themselves."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.graph.analysis.attributes import constant_tensor, plain_attributes


def node(body: str) -> ir.Node:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[2] x) => (float y) {{ {body} }}'
    return next(iter(ir.from_proto(onnx.parser.parse_model(text)).graph))


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("y = Constant <value = float[2] {1.0, 2.0}> ()", np.array([1, 2], np.float32)),
        ("y = Constant <value_int = 3> ()", np.array(3, np.int64)),
        ("y = Constant <value_ints = [3, 4]> ()", np.array([3, 4], np.int64)),
        ("y = Constant <value_float = 0.5> ()", np.array(0.5, np.float32)),
        ("y = Constant <value_floats = [0.5]> ()", np.array([0.5], np.float32)),
    ],
)
def test_the_tensor_of_a_constant_whichever_attribute_holds_it(body: str, value: np.ndarray) -> None:
    tensor = constant_tensor(node(body))
    assert tensor is not None
    array = tensor.numpy()
    assert (array.dtype, array.shape) == (value.dtype, value.shape)
    np.testing.assert_array_equal(array, value)


@pytest.mark.parametrize("text", [b"plain", b"\xff not UTF-8"])
def test_a_text_may_have_any_bytes(text: bytes) -> None:
    tensor = constant_tensor(ir.serde.deserialize_node(onnx.helper.make_node("Constant", [], ["y"], value_string=text)))
    assert tensor is not None
    assert tensor.numpy().item() == text


def test_what_only_a_call_decides_is_no_constant() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g () => (float y) { y = local.held <v = 1.0> () }
    <domain: "local", opset_import: ["" : 17]> held <v> () => (b) { b = Constant <value_float: float = @v> () }"""
    (function,) = ir.from_proto(onnx.parser.parse_model(text)).functions.values()
    assert constant_tensor(next(iter(function))) is None


@pytest.mark.parametrize(("held", "shape"), [('value_string = "a"', ()), ('value_strings = ["a", "é"]', (2,))])
def test_strings_are_a_tensor_that_can_be_written(held: str, shape: tuple[int, ...]) -> None:
    tensor = constant_tensor(node(f"y = Constant <{held}> ()"))
    assert tensor is not None
    assert tensor.dtype == ir.DataType.STRING
    assert ir.to_proto(tensor).string_data[0] == b"a"
    assert tensor.shape == shape


def test_attributes_without_graphs_and_large_tensors() -> None:
    branch = "() => (float q) { q = Identity (x) }"
    assert plain_attributes(node(f"y = If (c) <then_branch = t {branch}, else_branch = e {branch}>")) == {}
    assert plain_attributes(node("y = LeakyRelu <alpha = 0.5> (x)")) == {"alpha": 0.5}
    for count, kept in ((1024, True), (1025, False)):
        value = ir.AttrTensor("value", ir.tensor(np.zeros(count, np.float32)))
        assert ("value" in plain_attributes(ir.Node("", "Constant", [], [value]))) == kept
