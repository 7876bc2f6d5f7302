"""Old models: raised, checked, and the same numbers, worked out by hand or by ONNX Runtime on the original."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets import find_target
from tests.passes.opset.models import Array, bring, close, opset, parse, run

RNG = np.random.default_rng(0)


def old(
    node: onnx.NodeProto, x: Array, out: list[int], weights: dict[str, Array], version: int, ir_version: int = 3
) -> onnx.ModelProto:
    """A model of one node; below IR 4 its weights are inputs as well."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    if ir_version < 4:
        for name, array in weights.items():
            inputs.append(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            )
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)]
    graph = helper.make_graph([node], "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_operatorsetid("", version)], ir_version=ir_version)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("version", [1, 5, 6])
def test_batch_normalization(version: int) -> None:
    x = floats(1, 3, 4, 4)
    s, b, m, v = floats(3), floats(3), floats(3), np.abs(floats(3))
    attributes = {"is_test": 1, **({"consumed_inputs": [0, 0, 0, 1, 1]} if version == 1 else {})}
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], name="bn", **attributes)
    model = old(node, x, [1, 3, 4, 4], {"s": s, "b": b, "m": m, "v": v}, version)
    raised, context = bring(model, "auto")
    assert opset(raised) == find_target().dml_opset
    assert raised.ir_version >= 4
    assert [i.name for i in raised.graph.input] == ["x"]
    assert context.facts.weights_not_inputs == 4
    column = (1, 3, 1, 1)
    wanted = (x - m.reshape(column)) / np.sqrt(v.reshape(column) + 1e-5) * s.reshape(column) + b.reshape(column)
    close(run(raised, {"x": x}), [wanted])


def test_an_operand_laid_along_an_axis() -> None:
    x, b = floats(1, 3, 4, 5), floats(3)
    node = helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)
    raised, _ = bring(old(node, x, [1, 3, 4, 5], {"b": b}, 6), "auto")
    close(run(raised, {"x": x}), [x + b.reshape(1, 3, 1, 1)])


def test_weights_stay_out_of_the_way() -> None:
    x, w, b = floats(2, 300), floats(40, 300), floats(40)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, broadcast=1)
    raised, _ = bring(old(node, x, [2, 40], {"w": w, "b": b}, 6), "auto")
    close(run(raised, {"x": x}), [x @ w.T + b])


@pytest.mark.parametrize(
    ("node", "out", "weights", "version"),
    [
        (helper.make_node("Slice", ["x"], ["y"], axes=[2], starts=[1], ends=[3]), [1, 3, 2, 4], {}, 7),
        (helper.make_node("Pad", ["x"], ["y"], pads=[0, 0, 1, 1, 0, 0, 1, 1], value=1.0), [1, 3, 6, 6], {}, 7),
        (helper.make_node("Clip", ["x"], ["y"], min=-0.5, max=0.5), [1, 3, 4, 4], {}, 7),
        (helper.make_node("Softmax", ["x"], ["y"], axis=1), [1, 3, 4, 4], {}, 9),
        (helper.make_node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 3.0, 2.0], mode="nearest"), [1, 3, 12, 8], {}, 7),
        (
            helper.make_node("Upsample", ["x", "s"], ["y"], mode="linear"),
            [1, 3, 8, 8],
            {"s": np.float32([1, 1, 2, 2])},
            9,
        ),
        (helper.make_node("Upsample", ["x", "s"], ["y"]), [1, 3, 10, 6], {"s": np.float32([1, 1, 2.5, 1.5])}, 9),
        (helper.make_node("Resize", ["x", "s"], ["y"]), [1, 3, 2, 1], {"s": np.float32([1, 1, 0.5, 0.3])}, 10),
        (
            helper.make_node("Resize", ["x", "s"], ["y"], mode="linear"),
            [1, 3, 6, 2],
            {"s": np.float32([1, 1, 1.5, 0.5])},
            10,
        ),
        (helper.make_node("ReduceSum", ["x"], ["y"], axes=[-1], keepdims=1), [1, 3, 4, 1], {}, 12),
        (helper.make_node("Dropout", ["x"], ["y"], ratio=0.3), [1, 3, 4, 4], {}, 10),
    ],
    ids=lambda v: f"{v.op_type}-{len(v.attribute)}" if isinstance(v, onnx.NodeProto) else "",
)
def test_to_17_as_before(node: onnx.NodeProto, out: list[int], weights: dict[str, Array], version: int) -> None:
    x = floats(1, 3, 4, 4)
    model = old(node, x, out, weights, version, ir_version=4)
    raised, context = bring(model, 17)
    assert opset(raised) == 17
    assert context.findings[0].facts["kind"] == "raised"
    close(run(raised, {"x": x}), run(model, {"x": x}))


def test_a_resize_that_leaves_its_rounding_open_is_refused() -> None:
    node = helper.make_node("Resize", ["x", "s"], ["y"], name="up_and_down")
    model = old(node, floats(1, 3, 4, 4), [1, 3, 8, 2], {"s": np.float32([1, 1, 2, 0.5])}, 10, ir_version=4)
    with pytest.raises(ModelRefused, match="whose scales are unknown") as refused:
        bring(model, 17)
    assert refused.value.code == "DP104"
    assert "up_and_down" in refused.value.where


def test_texts_and_metadata_survive() -> None:
    model = old(helper.make_node("Softmax", ["x"], ["y"], name="s"), floats(2, 3), [2, 3], {}, 11, ir_version=6)
    model.metadata_props.add(key="author", value="me")
    model.graph.doc_string = "about"
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    raised, _ = bring(model, 17)
    assert [(p.key, p.value) for p in raised.metadata_props] == [("author", "me")]
    assert raised.graph.doc_string == "about"
    assert raised.graph.input[0].type.tensor_type.shape.dim[0].denotation == "DATA_BATCH"


def test_a_node_that_becomes_several_gives_its_name_to_one() -> None:
    model = old(helper.make_node("Softmax", ["x"], ["y"], name="s", axis=1), floats(2, 3, 4), [2, 3, 4], {}, 6)
    raised, _ = bring(model, 17)
    names = [node.name for node in raised.graph.node if node.name]
    assert len(raised.graph.node) > 1
    assert "s" in names
    assert len(set(names)) == len(names)
    x = floats(2, 3, 4)
    close(run(raised, {"x": x}), run(model, {"x": x}))


def test_functions_are_inlined_before_the_converter_would_drop_them() -> None:
    text = """<ir_version: 8, opset_import: ["" : 12, "my" : 1]>
    g (float[2, 3] x) => (float[2, 3] y) { y = my.f (x) }
    <domain: "my", opset_import: ["" : 12]> f (a) => (b) { b = Softmax <axis = 1> (a) }"""
    model = parse(text)
    x = floats(2, 3)
    raised, _ = bring(model, 17)
    assert not raised.functions
    close(run(raised, {"x": x}), run(model, {"x": x}))


def test_up_without_changed_operators_is_a_relabelling() -> None:
    model = parse('<ir_version: 8, opset_import: ["" : 13]> g (float[2] x) => (float[2] y) { [n] y = Relu (x) }')
    raised, _ = bring(model, 20)
    assert opset(raised) == 20
    assert [n.name for n in raised.graph.node] == ["n"]
