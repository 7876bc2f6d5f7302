"""What comes through the door is what onnx itself says."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import checker, inliner, numpy_helper, shape_inference, version_converter

from dmlprep.process.onnx_worker import calls, door
from dmlprep.process.onnx_worker.door import OnnxError
from fixtures.crashing import calls_twice
from tests.fixtures_index import fixture


def parsed(body: str, opset: int = 17) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[2, n] x) => (float[2, m] y) {{ {body} }}'
    return onnx.parser.parse_model(text)


SHAPES = "s = Shape (x) z = ConstantOfShape (s) a = Add (x, z) y = Relu (a)"


@pytest.mark.parametrize("propagate", [False, True])
def test_shape_inference(propagate: bool) -> None:
    for name in ("bert_encoder", "nested_control", "local_functions"):
        model = onnx.load(fixture(name).path)
        expected = shape_inference.infer_shapes(model, data_prop=propagate)
        assert calls.infer_shapes(model, propagate=propagate) == expected


def test_strict_inference_refuses_what_onnx_refuses() -> None:
    wrong = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 4] x) => (float[2, 3] y) { y = Relu (x) }'
    )
    with pytest.raises(shape_inference.InferenceError) as by_onnx:
        shape_inference.infer_shapes(wrong, check_type=True, strict_mode=True, data_prop=True)
    with pytest.raises(OnnxError) as through:
        calls.infer_shapes(wrong, check_type=True, strict=True)
    assert str(through.value) == str(by_onnx.value)
    assert "(4) vs (3)" in through.value.line


def test_the_checker() -> None:
    calls.check_model(parsed(SHAPES))
    wrong = parsed("y = Frobnicate (x)")
    with pytest.raises(checker.ValidationError) as by_onnx:
        checker.check_model(wrong)
    with pytest.raises(OnnxError) as through:
        calls.check_model(wrong)
    assert str(through.value) == str(by_onnx.value)


def test_one_node() -> None:
    schema = onnx.defs.get_schema("Reshape", 17)
    node = onnx.helper.make_node("Reshape", ["data", "shape"], ["out"])
    types = {
        "data": onnx.helper.make_tensor_type_proto(1, [2, 3, 4]),
        "shape": onnx.helper.make_tensor_type_proto(7, [2]),
    }
    data = {"shape": numpy_helper.from_array(np.array([6, -1], np.int64), "shape")}
    found = calls.infer_node(schema, node, types, data, 17, 8)
    assert found == shape_inference.infer_node_outputs(schema, node, types, data)
    assert [d.dim_value for d in found["out"].tensor_type.shape.dim] == [6, 4]
    with pytest.raises(OnnxError):
        calls.infer_node(schema, node, {**types, "shape": onnx.helper.make_tensor_type_proto(7, [2, 2])}, {}, 17, 8)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs"),
    [
        ("Mul", ["a", "a"], ["b"]),
        ("Clip", ["a", "", "most"], ["v0"]),
        ("Clip", ["v1", "", "v0"], ["a"]),
        ("Dropout", ["a"], ["b", "mask"]),
        ("Split", ["a", "parts"], ["v2", "v1"]),
    ],
)
def test_nodes_of_one_kind_are_one_request(
    op_type: str, inputs: list[str], outputs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their values are called; the names that onnx is given for them are none of anybody's."""
    schema = onnx.defs.get_schema(op_type, 17)
    asked: list[tuple[bytes, ...]] = []

    def once(word: str, *parts: bytes) -> list[bytes]:
        asked.append(parts)
        return door.ask_once(word, *parts)

    monkeypatch.setattr(calls, "ask_once", once)
    for prefix in ("", "layer.7/"):
        names = {name: name and prefix + name for name in (*inputs, *outputs)}
        node = onnx.helper.make_node(op_type, [names[n] for n in inputs], [names[n] for n in outputs], name=prefix)
        types = {names[inputs[0]]: onnx.helper.make_tensor_type_proto(1, [2, 3])}
        if inputs[-1] != inputs[0]:
            types[names[inputs[-1]]] = onnx.helper.make_tensor_type_proto(
                *((7, [2]) if op_type == "Split" else (1, []))
            )
        data = {name: numpy_helper.from_array(np.array([1, 1], np.int64), name) for name in types if "parts" in name}
        given = {name: tensor.name for name, tensor in data.items()}
        found = calls.infer_node(schema, node, types, data, 17, 8)
        assert found == shape_inference.infer_node_outputs(schema, node, types, data)
        assert {name: tensor.name for name, tensor in data.items()} == given
    assert asked[0] == asked[1]


def test_a_refusal_speaks_of_the_values_as_they_are_called() -> None:
    schema = onnx.defs.get_schema("Concat", 17)
    node = onnx.helper.make_node("Concat", ["one", "other"], ["out"], name="joined", axis=0)
    types = {name: onnx.helper.make_tensor_type_proto(1, dims) for name, dims in (("one", [2, 2]), ("other", [2, 3]))}
    with pytest.raises(OnnxError) as refused:
        calls.infer_node(schema, node, types, {}, 17, 8)
    with pytest.raises(shape_inference.InferenceError) as by_onnx:
        shape_inference.infer_node_outputs(schema, node, types)
    assert str(refused.value) == str(by_onnx.value)


def test_the_version_converter() -> None:
    old = parsed("y = Relu (x)", opset=9)
    assert calls.convert_version(old, 17) == version_converter.convert_version(old, 17)
    with pytest.raises(RuntimeError) as by_onnx:
        version_converter.convert_version(old, 999)
    with pytest.raises(OnnxError) as through:
        calls.convert_version(old, 999)
    assert str(through.value) == str(by_onnx.value)


def test_the_inliner() -> None:
    model = calls_twice(4)
    chosen = [("f", "f0"), ("f", "f2")]
    found = calls.inline_functions(model, chosen)
    assert found == inliner.inline_selected_functions(model, chosen)
    assert {f.name for f in found.functions} == {"f1", "f3"}


def test_a_function_body_of_the_node_s_types() -> None:
    schema = onnx.defs.get_schema("CastLike", 17)
    node = onnx.helper.make_node("CastLike", ["x", "like"], ["y"])
    types = [onnx.helper.make_tensor_type_proto(kind, [2]) for kind in (1, 10)]
    version = schema.context_dependent_function_opset_versions[0]
    body = calls.function_body(schema, version, node, types)
    assert body is not None
    assert [n.op_type for n in body.node] == ["Cast"]
    assert calls.function_body(schema, version, node, [types[0], onnx.TypeProto()]) is None


def test_text_that_is_no_utf8_is_no_fault() -> None:
    data = parsed("y = Frobnicate (x)").SerializeToString().replace(b"Frobnicate", b"Frob\xff\xfe\xfdcat")
    bent = onnx.ModelProto.FromString(data)
    with pytest.raises(OnnxError):
        calls.check_model(bent)


def test_a_body_holds_no_hull_of_a_type_that_nobody_knows() -> None:
    """A subgraph that does not say what it gives: onnx writes a sequence of nothing into the body of SequenceMap."""
    schema = onnx.defs.get_schema("SequenceMap", 17)
    one = onnx.helper.make_tensor_value_info("x", 1, [2])
    inner = onnx.helper.make_graph(
        [onnx.helper.make_node("Shape", ["x"], ["s"])], "inner", [one], [onnx.ValueInfoProto(name="s")]
    )
    node = onnx.helper.make_node("SequenceMap", ["xs"], ["ys"], body=inner)
    kind = onnx.helper.make_sequence_type_proto(one.type)
    body = calls.function_body(schema, 17, node, [kind])
    assert body is not None
    (loop,) = [part for part in body.node if part.op_type == "Loop"]
    values = [v for a in loop.attribute for v in (*a.g.input, *a.g.output, *a.g.value_info)]
    assert [v.name for v in values if v.type == onnx.helper.make_sequence_type_proto(onnx.TypeProto())] == []
    assert any(not v.HasField("type") for v in values)
    proto = onnx.helper.make_graph(list(body.node), "g", [], [])
    assert len(ir.serde.deserialize_graph(proto)) == len(body.node)


_HULLS = """<ir_version: 8, opset_import: ["" : 17]> g (seq(float[2]) xs, int64 at) => (seq(float[2]) ys) {
  inner = SequenceMap (xs) <body = b (float[2] x) => (float[2] s) { s = Abs (x) }>
  first = SequenceAt (inner, at)
  ys = SequenceConstruct (first)
}"""


def test_inference_gives_no_hull_either() -> None:
    model = onnx.parser.parse_model(_HULLS)
    for value in (*model.graph.node[0].attribute[0].g.output, *model.graph.output):
        value.ClearField("type")
    model.graph.node[0].attribute[0].g.output[0].name = "what no node makes"
    plain = shape_inference.infer_shapes(model).graph
    empty = onnx.helper.make_sequence_type_proto(onnx.TypeProto())
    assert empty in [value.type for value in plain.value_info]
    found = calls.infer_shapes(model).graph
    assert empty not in [value.type for value in (*found.value_info, *found.output)]
    ir.serde.deserialize_graph(found)


def test_a_body_that_makes_a_value_twice_is_none() -> None:
    """onnx computes each input of a body of SequenceMap under its name, which an initializer there may have as well."""
    schema = onnx.defs.get_schema("SequenceMap", 17)
    one, two = (onnx.helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "y"))
    add = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    kind = onnx.helper.make_sequence_type_proto(one.type)
    for name, fine in (("other", True), ("x", False)):
        default = numpy_helper.from_array(np.ones(2, np.float32), name)
        inner = onnx.helper.make_graph([add], "inner", [one], [two], [default])
        node = onnx.helper.make_node("SequenceMap", ["xs"], ["ys"], body=inner)
        if fine:
            assert calls.function_body(schema, 17, node, [kind]) is not None
            continue
        with pytest.raises(OnnxError, match="two values 'x'"):
            calls.function_body(schema, 17, node, [kind])
