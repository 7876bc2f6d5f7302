"""What a schema says of a node at another opset: attributes, numbers of inputs and outputs, types."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from dmlprep.graph.analysis.schemas import (
    allowed_types,
    rejects,
    schema_at,
    schema_of,
    since_versions,
    type_parameters,
    type_string,
)

FLOAT = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
HALF = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT16, None)
BFLOAT16 = helper.make_tensor_type_proto(onnx.TensorProto.BFLOAT16, None)


def node(body: str) -> ir.Node:
    text = f'<ir_version: 8, opset_import: ["" : 20]> g (float[2, 4] x, int64[1] i) => (float y) {{ {body} }}'
    return next(iter(ir.from_proto(onnx.parser.parse_model(text)).graph))


@pytest.mark.parametrize(
    ("body", "opset", "says"),
    [
        ("y = Gelu (x)", 20, ""),
        ("y = Gelu (x)", 17, "the operator does not exist at opset 17"),
        ("y = Reshape <allowzero = 1> (x, i)", 13, "attribute 'allowzero' does not exist at opset 13"),
        ("y = Reshape <allowzero = 1> (x, i)", 14, ""),
        ("y = Cast (x)", 13, "attribute 'to' is required at opset 13"),
        ("y = Squeeze (x, i)", 11, "2 inputs, but opset 11 accepts 1 to 1"),
        ("y = Dropout (x, , )", 12, ""),
        ("y, m, z = Relu (x)", 14, "3 outputs, but opset 14 has 1 to 1"),
        ("y = Gather (, i)", 13, "input 0 is required at opset 13"),
        ("y = Upsample (x, x)", 10, "the operator does not exist at opset 10"),
    ],
)
def test_why_a_node_is_rejected(body: str, opset: int, says: str) -> None:
    assert rejects(node(body), opset, [], []) == says


def test_types_are_looked_at_where_they_are_known() -> None:
    relu = node("y = Relu (x)")
    assert rejects(relu, 13, [BFLOAT16], [BFLOAT16]) == ""
    assert "input 0 has type tensor(bfloat16), which opset 6" in rejects(relu, 6, [BFLOAT16], [BFLOAT16])
    assert "output 0" in rejects(relu, 6, [None], [BFLOAT16])
    assert rejects(relu, 6, [None], [None]) == ""


def test_types_as_schemas_write_them() -> None:
    sequence = helper.make_sequence_type_proto(HALF)
    assert [type_string(t) for t in (FLOAT, HALF, sequence)] == [
        "tensor(float)",
        "tensor(float16)",
        "seq(tensor(float16))",
    ]
    assert type_string(helper.make_optional_type_proto(sequence)) == "optional(seq(tensor(float16)))"
    assert type_string(onnx.TypeProto()) == ""
    assert {"tensor(bfloat16)"} == allowed_types("Relu", 13) - allowed_types("Relu", 6) - {"tensor(int8)"}


def test_withdrawn_operators_have_a_schema_that_is_not_in_force() -> None:
    assert schema_of("", "Upsample", 10) is not None
    assert schema_at("Upsample", 10) is None
    assert schema_at("Upsample", 9) is not None
    assert schema_of("ai.onnx", "Relu", 17).since_version == schema_of("", "Relu", 17).since_version == 14
    assert schema_of("", "Frobnicate", 17) is None


def test_versions_and_parameters() -> None:
    assert since_versions()["Relu"][:4] == (1, 6, 13, 14)
    assert type_parameters("Concat", 13, outputs=False) == (("T", "Variadic"),)
    assert type_parameters("Clip", 13, outputs=False)[1] == ("T", "Optional")


def test_onnx_ir_writes_both_names_of_the_default_domain_as_one() -> None:
    assert [ir.Node(domain, "Relu", []).domain for domain in ("", "ai.onnx", "com.microsoft")] == [
        "",
        "",
        "com.microsoft",
    ]
