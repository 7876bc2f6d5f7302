"""Types of values and of ports, from the operators' schemas, without a value_info."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from dmlprep.passes.precision.signature import operator_key, signature
from dmlprep.passes.precision.types import is_wide, solve_types
from tests.passes.precision.graphs import model_of

HEAD = '<ir_version: 8, opset_import: ["" : 21, "com.microsoft" : 1]> '
FLOAT, HALF, INT64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64


def types_of(body: str, inputs: str = "float16[2, 4] x") -> dict[str, ir.TypeProtocol | None]:
    """Types of all values that nodes make, none of which the text declares."""
    model = model_of(f"{HEAD}g ({inputs}) => () {{ {body} }}")
    found = solve_types(model.ir)
    return {value.name or "": kind for value, kind in found.items() if value.producer() is not None}


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        ("y = Relu (x)", HALF),
        ("y = Cast <to = 1> (x)", FLOAT),
        ("y = Shape (x)", INT64),
        ("y = ConstantOfShape <value = int64[1] {1}> (x)", INT64),
        ("y = ConstantOfShape (x)", FLOAT),
        ("y = RandomNormalLike (x)", HALF),
        ("y = RandomNormalLike <dtype = 11> (x)", ir.DataType.DOUBLE),
        ("v, y = TopK (x, x)", INT64),
        ("v, y = LayerNormalization (x, x)", FLOAT),
        ("v, y = LayerNormalization <stash_type = 10> (x, x)", HALF),
        ("s = SplitToSequence (x) y = ConcatFromSequence <axis = 0> (s)", HALF),
        ("o = Optional (x) y = OptionalGetElement (o)", HALF),
        ("q = QuantizeLinear (x, x) y = DequantizeLinear (q, x)", HALF),
        ("y = com.microsoft.Gelu (x)", HALF),
        ("y = Constant <value_ints = [1]> ()", INT64),
    ],
)
def test_type_of_a_result(body: str, dtype: ir.DataType) -> None:
    assert types_of(body)["y"] == ir.TensorType(dtype)


def test_types_go_into_bodies_and_come_out() -> None:
    found = types_of(
        """y, rows = Loop (n, c, x) < body = b (int64 i, bool on, h) => (still, next, row) {
        still = Identity (on) next = Sqrt (h) row = Cast <to = 1> (h) } >
        z = If (c) < then_branch = t () => (p) { p = Neg (x) }, else_branch = e () => (q) { q = Exp (x) } >""",
        "float16[2] x, int64 n, bool c",
    )
    assert [found[name] for name in ("next", "y", "p", "z")] == [ir.TensorType(HALF)] * 4
    assert found["row"] == found["rows"] == ir.TensorType(FLOAT)


def test_an_operator_that_is_not_known_has_no_type() -> None:
    assert types_of("y = com.microsoft.Frobnicate (x)")["y"] is None


def test_wide_types() -> None:
    wide = [ir.TensorType(FLOAT), ir.TensorType(ir.DataType.DOUBLE), ir.TensorType(ir.DataType.BFLOAT16)]
    narrow = [ir.TensorType(HALF), ir.TensorType(INT64), ir.SequenceType(ir.TensorType(FLOAT)), None]
    assert [is_wide(kind) for kind in (*wide, *narrow)] == [True] * 3 + [False] * 4


def test_ports() -> None:
    resize = signature(ir.Node("", "Resize", []), {"": 19})
    assert resize is not None
    data, _, scales = (resize.input(index) for index in range(3))
    assert data is not None
    assert scales is not None
    assert (data.variable, data.only) == ("T1", None)
    assert {FLOAT, HALF} <= data.floats
    assert (scales.variable, scales.only) == ("", FLOAT)
    assert resize.input(4) is None
    assert resize.output(1) is None


def test_variadic_ports_repeat_and_those_of_a_loop_differ() -> None:
    concat, loop = (signature(ir.Node("", op, []), {"": 16}) for op in ("Concat", "Loop"))
    assert concat is not None
    assert loop is not None
    assert concat.input(7) == concat.input(0)
    first, second = loop.input(2), loop.input(3)
    assert first is not None
    assert second is not None
    assert first.variable != second.variable
    assert first.label == second.label == "V"


def test_operators_of_onnxruntime_have_signatures_of_their_own() -> None:
    node = ir.Node("com.microsoft", "SkipLayerNormalization", [])
    found = signature(node, {"": 17, "com.microsoft": 1})
    assert operator_key(node) == "com.microsoft::SkipLayerNormalization"
    assert operator_key(ir.Node("ai.onnx", "Relu", [])) == "Relu"
    assert found is not None
    assert [port.variable for port in found.outputs] == ["T", "", "", "T"]
    assert found.outputs[1].floats == {FLOAT}
    assert signature(ir.Node("", "Gelu", []), {"": 17}) is None
