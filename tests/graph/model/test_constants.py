"""The tensor that a value holds, of models that nobody has checked yet."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dmlprep.graph.model.constants import held_tensor


def _constant(*attributes: ir.Attr, outputs: int = 1) -> ir.Value:
    return ir.Node("", "Constant", [], attributes, num_outputs=outputs).outputs[0]


def test_what_a_constant_holds() -> None:
    held = held_tensor(_constant(ir.AttrInt64("value_int", 3)))
    assert held is not None
    assert held.numpy().item() == 3
    assert held_tensor(ir.Value(name="x")) is None
    assert held_tensor(None) is None


@pytest.mark.parametrize(
    "value",
    [
        _constant(ir.AttrInt64("value_int", 3), outputs=2),
        _constant(),
        _constant(ir.AttrInt64("value_int", 3), ir.AttrInt64("other", 3)),
        _constant(ir.AttrInt64("other", 3)),
    ],
    ids=["two outputs", "no attribute", "two attributes", "unknown attribute"],
)
def test_a_constant_of_a_wrong_form_holds_nothing(value: ir.Value) -> None:
    assert held_tensor(value) is None


def test_a_look_changes_nothing() -> None:
    tensor = ir.serde.deserialize_tensor(onnx.helper.make_tensor("", onnx.TensorProto.INT64, [1], [2]))
    value = _constant(ir.AttrTensor("value", tensor))
    value.name = "two"
    held = held_tensor(value)
    assert held is not None
    assert (held.numpy().tolist(), tensor.name) == ([2], "")
    assert held_tensor(_constant(ir.RefAttr("value", "outer", ir.AttributeType.TENSOR))) is None
