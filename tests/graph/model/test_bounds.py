"""Bounds at the door: ranks, sizes, nesting, element types, versions, attributes; each with one clear line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

import dmlprep
from dmlprep.core.errors import DmlprepError, InputError, ModelRefused
from dmlprep.graph.model import Model
from dmlprep.graph.model.bounds import MAX_NESTING

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _saved(path: Path, model: onnx.ModelProto) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def _model(
    nodes: list[onnx.NodeProto],
    dims: list[int] | None = None,
    *,
    out: onnx.ValueInfoProto | None = None,
    weights: list[onnx.TensorProto] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", FLOAT, [2] if dims is None else dims)
    y = out or helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _relu(name: str = "r") -> onnx.NodeProto:
    return helper.make_node("Relu", ["x"], ["y"], name)


def _shape(*numbers: int) -> list[onnx.TensorProto]:
    return [onnx.numpy_helper.from_array(np.array(numbers, np.int64), "s")]


def _refusal(path: Path) -> DmlprepError:
    with pytest.raises(DmlprepError) as caught:
        Model.open(path)
    assert caught.value.exit_code in (1, 2)
    assert caught.value.fix
    assert str(path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("dims", "words"),
    [([1] * 65, "65 dimensions"), ([1 << 62], "too many elements"), ([1 << 62, 1 << 62], "too many elements")],
)
def test_a_tensor_that_cannot_be_held(dims: list[int], words: str, tmp_path: Path) -> None:
    error = _refusal(_saved(tmp_path / "m.onnx", _model([_relu()], dims)))
    assert isinstance(error, ModelRefused)
    assert error.code == "DP016"
    assert words in error.what


def test_a_constant_that_cannot_be_held(tmp_path: Path) -> None:
    weight = helper.make_tensor("s", FLOAT, [1] * 70, [1.0])
    model = _model([helper.make_node("Add", ["x", "s"], ["y"])], weights=[weight])
    assert _refusal(_saved(tmp_path / "m.onnx", model)).code == "DP016"


@pytest.mark.parametrize("operator", ["Expand", "ConstantOfShape", "Reshape"])
def test_a_tensor_that_a_run_would_make_and_nobody_can_hold(operator: str, tmp_path: Path) -> None:
    sizes = (1 << 62, 1 << 62) if operator == "ConstantOfShape" else (1,) * 70
    read = ["s"] if operator == "ConstantOfShape" else ["x", "s"]
    model = _model([helper.make_node(operator, read, ["y"], "big")], [1], weights=_shape(*sizes))
    path = _saved(tmp_path / "m.onnx", model)
    record = dmlprep.prepare(path, out=tmp_path / "out", recipe="@static-fp32")
    (error,) = [f for f in record.all_findings() if f.severity == "error"]
    assert (record.exit_code, error.code) == (1, "DP016")
    assert "big" in error.node
    assert ".dmlprep" not in error.node


@pytest.mark.parametrize("to", [0, -1, 99, 1 << 62])
def test_a_number_that_is_no_element_type(to: int, tmp_path: Path) -> None:
    cast = helper.make_node("Cast", ["x"], ["y"], "c", to=to)
    error = _refusal(_saved(tmp_path / "m.onnx", _model([cast])))
    assert (error.code, error.what) == ("DP003", f"to={to} is not an element type")


@pytest.mark.parametrize("data_type", [-128, 99])
@pytest.mark.parametrize("in_attribute", [True, False])
def test_a_tensor_of_a_number_that_is_no_element_type(data_type: int, in_attribute: bool, tmp_path: Path) -> None:
    weight = helper.make_tensor("s", FLOAT, [1], [1.0])
    weight.data_type = data_type
    nodes = [helper.make_node("Add", ["x", "s"], ["y"])]
    if in_attribute:
        nodes.insert(0, helper.make_node("Constant", [], ["s"], value=weight))
    error = _refusal(_saved(tmp_path / "m.onnx", _model(nodes, weights=[] if in_attribute else [weight])))
    assert (error.code, error.what) == ("DP003", f"{data_type} is not an element type")


@pytest.mark.parametrize("version", [-1, 1 << 31, 1 << 62])
def test_a_number_that_is_no_version(version: int, tmp_path: Path) -> None:
    error = _refusal(_saved(tmp_path / "m.onnx", _model([_relu()], opset=version)))
    assert f"{version} is not a version of the domain ai.onnx" in error.what


def test_a_negative_size_is_a_size_that_nobody_knows(tmp_path: Path) -> None:
    record = dmlprep.check(_saved(tmp_path / "m.onnx", _model([_relu()], [-5])))
    assert not [f for f in record.findings if f.severity == "error"]


def _nested(depth: int) -> bytes:
    """A model whose Ifs lie ``depth`` deep in one another, written without protobuf, which stops earlier."""

    def number(value: int) -> bytes:
        found = bytearray()
        while value > 0x7F:
            found.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*found, value])

    def field(tag: int, data: bytes) -> bytes:
        return number(tag << 3 | 2) + number(len(data)) + data

    def graph(node: bytes, result: str) -> bytes:
        return (
            field(1, node)
            + field(2, b"b")
            + field(12, helper.make_tensor_value_info(result, FLOAT, [2]).SerializeToString())
        )

    def branch(name: str, body: bytes) -> bytes:
        return field(5, field(1, name.encode()) + field(6, body) + number(20 << 3) + number(AttributeProto.GRAPH))

    other = graph(helper.make_node("Neg", ["x"], ["n"]).SerializeToString(), "n")
    body = graph(helper.make_node("Relu", ["x"], ["b"]).SerializeToString(), "b")
    for level in range(depth):
        node = field(1, b"c") + field(2, b"v%d" % level) + field(4, b"If")
        body = graph(node + branch("then_branch", body) + branch("else_branch", other), f"v{level}")
    for name, kind, dims in (("x", FLOAT, [2]), ("c", TensorProto.BOOL, [])):
        body += field(11, helper.make_tensor_value_info(name, kind, dims).SerializeToString())
    return number(1 << 3) + number(8) + field(8, number(2 << 3) + number(17)) + field(7, body)


def test_graphs_nested_as_deep_as_protobuf_reads(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(_nested(MAX_NESTING))
    assert Model.open(path).statistics().nodes
    for depth in (MAX_NESTING + 1, MAX_NESTING + 10, 300):
        path.write_bytes(_nested(depth))
        error = _refusal(path)
        assert error.code in ("DP003", "DP016")
        assert "nested too deep" in error.what
        assert "If, Loop and Scan" in error.fix


def test_a_model_without_outputs(tmp_path: Path) -> None:
    model = _model([_relu()])
    del model.graph.output[:]
    path = _saved(tmp_path / "m.onnx", model)
    assert _refusal(path).code == "DP017"
    record = dmlprep.prepare(path, out=tmp_path / "out", settings={"parity.cpu": False})
    assert (record.exit_code, [f.code for f in record.all_findings()]) == (1, ["DP017"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["Relu", "Identity"])
def test_an_output_of_another_type_than_is_declared(kind: str, tmp_path: Path) -> None:
    node = helper.make_node(kind, ["x"], ["y"])
    model = _model([node], out=helper.make_tensor_value_info("y", INT64, [2]))
    path = _saved(tmp_path / "m.onnx", model)
    record = dmlprep.prepare(path, out=tmp_path / "out", recipe="@static-fp32")
    assert record.exit_code == 1
    assert "declared INT64, but is FLOAT" in record.all_findings()[-1].message
    assert [f.code for f in dmlprep.check(path).findings if f.severity == "error"][:1] == ["DP003"]


def test_an_output_of_another_type_than_an_input_that_must_have_the_same(tmp_path: Path) -> None:
    # Of what com.microsoft's operator makes nobody knows the type; the weights of the Gemm tell that of its result.
    nodes = [
        helper.make_node("Unheard", ["x"], ["h"], domain="com.microsoft"),
        helper.make_node("Gemm", ["h", "w"], ["y"]),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])
    y = helper.make_tensor_value_info("y", TensorProto.DOUBLE, [1, 2])
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    record = dmlprep.prepare(
        tmp_path / "m.onnx", out=tmp_path / "out", recipe="@static-fp32", settings={"parity.cpu": False}
    )
    assert record.exit_code == 1
    assert "declared DOUBLE, but is FLOAT" in record.all_findings()[-1].message


def test_an_output_that_is_a_sequence_and_declared_a_tensor(tmp_path: Path) -> None:
    model = _model([helper.make_node("SequenceConstruct", ["x"], ["y"])])
    record = dmlprep.prepare(_saved(tmp_path / "m.onnx", model), out=tmp_path / "out", recipe="@static-fp32")
    assert record.exit_code == 1
    assert "declared FLOAT, but is sequence of FLOAT" in record.all_findings()[-1].message


@pytest.mark.parametrize("kind", ["Constant", "Relu"])
def test_a_node_without_outputs(kind: str, tmp_path: Path) -> None:
    value = {"value": helper.make_tensor("c", FLOAT, [1], [1.0])} if kind == "Constant" else {}
    idle = helper.make_node(kind, [] if value else ["x"], [], "idle", **value)
    path = _saved(tmp_path / "m.onnx", _model([idle, _relu()]))
    assert "DP003" in {f.code for f in dmlprep.check(path).findings}
    with pytest.raises(InputError, match="not valid ONNX"):
        dmlprep.prepare(path, out=tmp_path / "out", recipe="@static-fp32")
    with pytest.raises(InputError, match="not valid ONNX"):
        dmlprep.plan_model(path)


A = AttributeProto


@pytest.mark.parametrize(
    ("operator", "attributes", "words"),
    [
        ("Conv", [A(name="kernel_shape", type=A.GRAPH)], "'kernel_shape' is declared GRAPH, but contains nothing"),
        ("Conv", [A(name="auto_pad", type=A.TENSORS)], "'auto_pad' is TENSORS, but the operator needs STRING"),
        ("Conv", [A(name="group", type=A.FLOAT, f=1.0)], "'group' is FLOAT, but the operator needs INT"),
        ("Conv", [A(name="group", type=A.INT, f=1.0)], "'group' is declared INT, but contains FLOAT"),
        ("Conv", [A(name="group", type=A.INT, i=1), A(name="group", type=A.INT, i=2)], "'group' is duplicated"),
        ("Conv", [A(name="group")], "'group' has no type"),
        ("Foreign", [A(name="body", type=A.GRAPH)], "'body' is declared GRAPH, but contains nothing"),
        ("Foreign", [A(name="n", type=A.INT, g=onnx.GraphProto(name="g"))], "'n' is declared INT, but contains GRAPH"),
    ],
)
def test_an_attribute_of_another_type(
    operator: str, attributes: list[AttributeProto], words: str, tmp_path: Path
) -> None:
    node = helper.make_node(operator, ["x", "s"], ["y"], "bad")
    node.attribute.extend(attributes)
    weight = onnx.numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "s")
    path = _saved(tmp_path / "m.onnx", _model([node], [1, 1, 4, 4], weights=[weight]))
    error = _refusal(path)
    assert isinstance(error, InputError)
    assert words in error.what
    assert "node bad" in error.where


@pytest.mark.parametrize("given", [0, 2])
def test_a_branch_with_more_or_fewer_outputs_than_its_if(given: int, tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], [f"v{i}"]) for i in range(given)]
    branch = helper.make_graph(
        nodes, "b", [], [helper.make_tensor_value_info(f"v{i}", FLOAT, [2]) for i in range(given)]
    )
    choice = helper.make_node("If", ["s"], ["y"], "bad", then_branch=branch, else_branch=branch)
    model = _model([choice], weights=[onnx.numpy_helper.from_array(np.array(True), "s")])
    assert f"returns {given} values, but the If has 1" in _refusal(_saved(tmp_path / "m.onnx", model)).what


def test_a_function_of_the_models_own_has_its_own_attributes(tmp_path: Path) -> None:
    model = _model([helper.make_node("Own", ["x"], ["y"], "o", domain="own", group="a")])
    inner = helper.make_node("Identity", ["a"], ["b"])
    imports = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "Own", ["a"], ["b"], [inner], imports, attributes=["group"]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert Model.open(_saved(tmp_path / "m.onnx", model)).statistics().nodes


@pytest.mark.parametrize(
    ("operator", "read", "words"),
    [
        ("Mul", ["a"], "it has 1 inputs, but the operator needs at least 2"),
        ("Mul", ["a", ""], "it has no input 1, which the operator needs"),
        ("Relu", ["a", "a"], "it has 2 inputs, but the operator needs at most 1"),
        ("CastLike", ["a"], "it has 1 inputs, but the operator needs at least 2"),
        ("Clip", ["a", "", "a"], ""),
        ("Max", ["a"] * 9, ""),
    ],
)
def test_inputs_of_a_node_in_a_function(operator: str, read: list[str], words: str, tmp_path: Path) -> None:
    """onnx's checker counts those of the graph alone."""
    model = _model([helper.make_node("Own", ["x"], ["y"], "o", domain="own")])
    inner = helper.make_node(operator, read, ["b"], "inner")
    model.functions.append(helper.make_function("own", "Own", ["a"], ["b"], [inner], [helper.make_opsetid("", 17)]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    path = _saved(tmp_path / "m.onnx", model)
    if not words:
        assert Model.open(path).statistics().nodes
        return
    error = _refusal(path)
    assert (error.what, error.code) == (words, "DP003")
    assert error.where.endswith("node inner")


@pytest.mark.parametrize("name", ["Relu", "rrrr", "xxxx"])
def test_names_that_are_no_text(name: str, tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["xxxx"], ["y"], "rrrr")
    x = helper.make_tensor_value_info("xxxx", FLOAT, [2])
    y = helper.make_tensor_value_info("y", FLOAT, [2])
    data = helper.make_model(helper.make_graph([node], "g", [x], [y]), ir_version=8).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data.replace(name.encode(), b"\xff\xfe\xed\xa0"))
    assert _refusal(path).code == "DP003"
