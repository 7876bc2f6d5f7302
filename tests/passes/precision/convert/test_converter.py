"""The converter on models of one trap each: valid, loadable, close, stable, with inputs and outputs kept or not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.passes.precision import convert
from tests.passes.precision.graphs import feeds_for, model_of, proto_of, relative, run
from tests.passes.precision.traps import TRAPS, W

BOUND = 0.02
"""The peers' bound for FP16 against FP32: max|difference| / max|reference|."""


def _sorted_and_unique(model: Model) -> None:
    for graph in (model.ir.graph,):
        seen = {v.name for v in graph.inputs} | set(graph.initializers)
        for node in graph:
            for value in node.inputs:
                assert value is None or value.name in seen, f"{node.name} reads {value} before it is made"
            for value in node.outputs:
                assert not value.name or value.name not in seen
                seen.add(value.name)


@pytest.mark.parametrize("keep_io", [True, False], ids=["keep_io", "half_io"])
@pytest.mark.parametrize("name", TRAPS)
def test_trap(name, keep_io):
    text, weights = TRAPS[name]
    model = model_of(text, weights)
    feeds = feeds_for(model)
    want = run(model, feeds)
    before = [(v.name, v.dtype) for v in (*model.ir.graph.inputs, *model.ir.graph.outputs)]
    convert(model, find_target(), keep_io=keep_io)
    after = [(v.name, v.dtype) for v in (*model.ir.graph.inputs, *model.ir.graph.outputs)]
    assert [n for n, _ in before] == [n for n, _ in after]
    weights_are_inputs = name.startswith("initializer_input_ir3")
    if keep_io and not weights_are_inputs:
        assert before == after
    proto = proto_of(model)
    onnx.checker.check_model(proto, full_check=True)
    _sorted_and_unique(model)
    got = run(model, feeds)
    for output, reference in want.items():
        if reference.dtype.kind == "f":
            assert relative(reference, got[output]) <= BOUND
        else:
            np.testing.assert_array_equal(reference, got[output])
    snapshot = model.snapshot()
    assert not convert(model, find_target(), keep_io=keep_io).changed
    assert snapshot.same_as(model.snapshot())


def test_casts_are_shared():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) '
        "{ a = MatMul(x, w) b = Relu(x) c = Neg(x) d = Add(a, b) y = Add(d, c) }",
        W,
    )
    convert(model, find_target())
    casts = [n for n in nodes(model.ir) if n.op_type == "Cast"]
    assert len(casts) == 2  # one for x, one for y


def test_no_cast_between_fp32_nodes():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) '
        "{ a = CumSum(x, i) b = Reshape(a, s) c = Transpose(b) y = CumSum(c, i) }",
        {"i": np.array(0), "s": np.array([16, 2])},
    )
    done = convert(model, find_target())
    assert not done.changed
    assert done.rules == {"running-sum": 2, "between": 2}


def test_keep_one_output():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y, float[2,16] z) '
        "{ y = Relu(x) z = Neg(y) }"
    )
    convert(model, find_target(), keep_io={"z"})
    kinds = {v.name: v.dtype.name for v in (*model.ir.graph.inputs, *model.ir.graph.outputs)}
    assert kinds == {"x": "FLOAT16", "y": "FLOAT16", "z": "FLOAT"}


def test_weights_stay_unread_until_saved(tmp_path):
    text, _ = TRAPS["explicit_cast"]
    weight = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    model_of(text, {"w": weight}).save(tmp_path / "m.onnx", external_over=0)
    model = Model.open(tmp_path / "m.onnx")
    convert(model, find_target())
    model.save(tmp_path / "half.onnx", external_over=0)
    again = Model.open(tmp_path / "half.onnx")
    stored = again.ir.graph.initializers["w"].const_value
    assert stored is not None
    np.testing.assert_array_equal(stored.numpy(), weight.astype(np.float16))


def test_policy_levels_keep_more():
    text, weights = TRAPS["decomposed_layer_norm"]
    kept = []
    for level in ("fast", "balanced", "safe"):
        model = model_of(text, weights)
        kept.append(set(convert(model, find_target(), level=level).kept_fp32))
    assert kept[0] <= kept[1] <= kept[2]
    assert kept[0] != kept[1]


def test_denotations_stay():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[b,16] x) => (float[b,16] y) '
        "{ a = MatMul(x, w) y = Relu(a) }",
        W,
    )
    for value in (*model.ir.graph.inputs, *model.ir.graph.outputs):
        assert value.shape is not None
        value.shape.set_denotation(0, "DATA_BATCH")
    convert(model, find_target())
    proto = proto_of(model)
    for value in (*proto.graph.input, *proto.graph.output):
        assert value.type.tensor_type.shape.dim[0].denotation == "DATA_BATCH"
        assert value.type.tensor_type.shape.dim[0].dim_param == "b"


def test_unknown_operators_keep_their_types():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17, "vendor" : 3]> g (float[2,16] x) => (float[2,16] y) '
        "<float[2,16] b> { a = MatMul(x, w) b = vendor.Twist(a) y = Relu(b) }",
        W,
    )
    done = convert(model, find_target())
    assert set(done.kept_fp32) == {"Twist(b)"}
    twist = next(n for n in nodes(model.ir) if n.op_type == "Twist")
    cast = twist.inputs[0].producer()
    assert cast is not None
    assert cast.op_type == "Cast"
    assert cast.attributes["to"].as_int() == 1
    readers = [n.op_type for n in twist.outputs[0].consumers()]
    assert readers == ["Cast"]
