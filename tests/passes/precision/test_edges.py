"""Models of one edge each: valid, loadable, close on the CPU and in the FP16 emulation, stable, ends as asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.passes.precision import convert, emulate
from tests.passes.precision.edge import MINE, Edge, W, normal, text
from tests.passes.precision.edges_contrib import CONTRIB
from tests.passes.precision.edges_graphs import GRAPHS
from tests.passes.precision.edges_idioms import IDIOMS
from tests.passes.precision.edges_operators import OPERATORS
from tests.passes.precision.edges_uses import USES
from tests.passes.precision.edges_values import VALUES
from tests.passes.precision.graphs import feeds_for, proto_of, run

EDGES = {**GRAPHS, **VALUES, **OPERATORS, **CONTRIB, **IDIOMS, **USES}
BOUND = 0.02
"""The peers' bound for FP16 against FP32: max|difference| / max|reference|."""

_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)


def _close(want: Any, got: Any) -> None:
    if isinstance(want, list):
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            _close(a, b)
        return
    if want.dtype.kind not in "f":
        np.testing.assert_array_equal(got, want)
        return
    a, b = want.astype(np.float64), got.astype(np.float64)
    assert a.shape == b.shape
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    infinite = np.isinf(a) | np.isinf(b)
    np.testing.assert_array_equal(a[infinite], b[infinite])
    usual = np.isfinite(a)
    assert np.abs(a[usual] - b[usual]).max(initial=0) <= BOUND * np.abs(a[usual]).max(initial=0)


def _convert(proto: onnx.ModelProto, keep_io: bool) -> Model:
    """Convert; hold what holds of every model."""
    model = Model(ir.from_proto(proto))
    before = [(v.name, v.type) for v in (*model.ir.graph.inputs, *model.ir.graph.outputs)]
    convert(model, find_target(), keep_io=keep_io)
    weights = set(model.ir.graph.initializers)
    for (name, kind), value in zip(before, (*model.ir.graph.inputs, *model.ir.graph.outputs), strict=True):
        assert value.name == name
        wide = isinstance(kind, ir.TensorType) and kind.dtype in _WIDE and name not in weights
        if keep_io or not wide:
            assert value.type == kind or name in weights
        else:
            assert value.dtype == ir.DataType.FLOAT16
    half = proto_of(model)
    onnx.checker.check_model(half, full_check=True)
    onnx.shape_inference.infer_shapes(half, check_type=True, strict_mode=True, data_prop=True)
    again = model.snapshot()
    assert not convert(model, find_target(), keep_io=keep_io).changed
    assert again.same_as(model.snapshot())
    return model


def _truth(proto: onnx.ModelProto, feeds: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Feeds and the original's outputs."""
    onnx.checker.check_model(proto, full_check=True)
    feeds = feeds or feeds_for(Model(ir.from_proto(proto)))
    return feeds, run(proto, feeds)


@cache
def _truth_of(name: str) -> tuple[onnx.ModelProto, tuple[dict[str, Any], dict[str, Any]]]:
    proto = EDGES[name].proto()
    return proto, _truth(proto, EDGES[name].feeds)


def _hold(proto: onnx.ModelProto, keep_io: bool, truth: tuple[dict[str, Any], dict[str, Any]] | None = None) -> Model:
    feeds, want = truth or _truth(proto)
    model = _convert(proto, keep_io)
    for got in (run(model, feeds), run(emulate(model), feeds)):
        for name, reference in want.items():
            _close(reference, got[name])
    return model


@pytest.mark.parametrize("keep_io", [True, False], ids=["keep_io", "half_io"])
@pytest.mark.parametrize("name", EDGES)
def test_edge(name: str, keep_io: bool) -> None:
    proto, truth = _truth_of(name)
    _hold(onnx.ModelProto.FromString(proto.SerializeToString()), keep_io, truth)


def _in_then(tensor: onnx.TensorProto) -> Callable[[onnx.ModelProto], None]:
    def edit(proto: onnx.ModelProto) -> None:
        branch = next(a.g for n in proto.graph.node for a in n.attribute if a.name == "then_branch")
        branch.initializer.append(tensor)

    return edit


def _weight(tensor: onnx.TensorProto) -> Callable[[onnx.ModelProto], None]:
    return lambda proto: proto.graph.initializer.append(tensor)


def _clash(proto: onnx.ModelProto) -> None:
    for node, name in zip(proto.graph.node, ["x_fp16_cast", "y_cast", "c_fp16_cast", "b_fp32_cast"], strict=True):
        node.name = name


def _as_floats(proto: onnx.ModelProto) -> None:
    tensor = proto.graph.initializer[0]
    array = numpy_helper.to_array(tensor)
    tensor.ClearField("raw_data")
    (tensor.float_data if array.dtype == np.float32 else tensor.double_data).extend(array.ravel().tolist())


_BRANCHES = "(float[2,16] x, bool c) => (float[2,16] y)"
_ELSE = "else_branch=e()=>(float[2,16] p){ p=Neg(x) }>"
EDITED: dict[str, tuple[Edge, Callable[[onnx.ModelProto], Any]]] = {
    "node_names_clash": (
        Edge(text("a=MatMul(x,w) b=Relu(a) c=CumSum(b,i) y=Neg(c)"), {**W, "i": np.array(1)}),
        _clash,
    ),
    "initializer_of_a_branch": (
        Edge(text(f"y=If(c)<then_branch=t()=>(float[2,16] o){{ o=MatMul(x,v) }}, {_ELSE}", _BRANCHES)),
        _in_then(numpy_helper.from_array(normal(16, 16, k=0.25), "v")),
    ),
    "initializer_of_a_branch_in_both_types": (
        Edge(
            text(
                "y=If(c)<then_branch=t()=>(float[2,16] o){ q=MatMul(x,v) r=CumSum(v,i) o=MatMul(q,r) }, " + _ELSE,
                _BRANCHES,
            ),
            {"i": np.array(0)},
        ),
        _in_then(numpy_helper.from_array(normal(16, 16, k=0.25), "v")),
    ),
    "initializer_that_a_branch_gives": (
        Edge(text(f"y=If(c)<then_branch=t()=>(float[2,16] o){{ u=Neg(x) }}, {_ELSE}", _BRANCHES)),
        _in_then(numpy_helper.from_array(normal(2, 16), "o")),
    ),
    "int4_weights": (
        Edge(
            text(
                "v=DequantizeLinear<axis=0,block_size=16>(q,s) y=MatMul(x,v)",
                "(float[2,32] x) => (float[2,16] y)",
                opset=21,
                ir=10,
            ),
            {"s": np.abs(normal(2, 16, k=0.05))},
        ),
        _weight(helper.make_tensor("q", TensorProto.INT4, [32, 16], [i % 15 - 7 for i in range(512)])),
    ),
    "float8_weights": (
        Edge(text("v=DequantizeLinear(q,s) y=MatMul(x,v)", opset=19, ir=9), {"s": np.float32(0.05)}),
        _weight(helper.make_tensor("q", TensorProto.FLOAT8E4M3FN, [16, 16], normal(256).tolist())),
    ),
    "bfloat16_weights": (
        Edge(text("c=Cast<to=1>(v) y=MatMul(x,c)")),
        _weight(helper.make_tensor("v", TensorProto.BFLOAT16, [16, 16], normal(256).tolist())),
    ),
    "float_data": (Edge(text("y=MatMul(x,w)"), W), _as_floats),
    "double_data": (Edge(text("d=Cast<to=1>(w) y=MatMul(x,d)"), {"w": W["w"].astype(np.float64)}), _as_floats),
}


@pytest.mark.parametrize("keep_io", [True, False], ids=["keep_io", "half_io"])
@pytest.mark.parametrize("name", EDITED)
def test_edge_that_text_cannot_say(name: str, keep_io: bool) -> None:
    edge, edit = EDITED[name]
    proto = edge.proto()
    edit(proto)
    _hold(proto, keep_io)


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13])
def test_ir_versions(version: int) -> None:
    opset = {3: 7, 4: 9, 5: 10, 6: 11, 7: 13, 8: 17, 9: 20, 10: 21, 11: 23, 12: 24, 13: 25}[version]
    proto = Edge(text("a=MatMul(x,k) y=Relu(a)", "(float[2,16] x, float[16,16] k) => (float[2,16] y)", opset, version))
    assert _hold(proto.proto(), True).ir.ir_version == version


def test_operators_that_nobody_knows_stay_fp32() -> None:
    ends = "(float[2,16] x, bool c) => (float[2,16] y)"
    body = (
        "a=MatMul(x,w) y=If(c)<then_branch=t()=>(float[2,16] o){ b=vendor.Twist(a) o=Relu(b) }, "
        "else_branch=e()=>(float[2,16] p){ p=com.microsoft.Twirl(a, w) }>"
    )
    proto = Edge(text(body, ends, more=', "vendor" : 3, "com.microsoft" : 1'), W).proto()
    model = Model(ir.from_proto(proto))
    convert(model, find_target())
    for node in nodes(model.ir):
        if node.op_type in ("Twist", "Twirl"):
            values = [v for v in node.inputs if v is not None]
            assert all(v.dtype == ir.DataType.FLOAT for v in values)
        elif node.op_type == "MatMul":
            assert node.inputs[1] is not None
            assert node.inputs[1].dtype == ir.DataType.FLOAT16


def test_fp64_beyond_fp32_stays_fp64() -> None:
    body = "a=Mul(x,k) b=Mul(a,l) y=Tanh(b)"
    weights = {"k": np.float64(1e200), "l": np.float64(1e-200)}
    _hold(Edge(text(body, "(double[2,16] x) => (double[2,16] y)"), weights).proto(), True)


def test_what_surrounds_the_graph_is_kept() -> None:
    proto = Edge(text("a=MatMul(x,w) y=Relu(a)", ir=11), {**W, "s": np.float32(1)}).proto()
    proto.metadata_props.add(key="k", value="v")
    proto.doc_string, proto.producer_name, proto.domain, proto.model_version = "model", "me", "mine", 7
    graph = proto.graph
    graph.doc_string, graph.node[0].doc_string, graph.input[0].doc_string = "graph", "node", "input"
    graph.initializer[0].doc_string = "tensor"
    for holder in (graph, graph.node[0], graph.output[0]):
        holder.metadata_props.add(key="k", value="v")
    annotation = graph.quantization_annotation.add(tensor_name="a")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    proto.configuration.add(name="two", num_devices=2)
    graph.node[0].device_configurations.add(configuration_id="two")
    result = proto_of(_convert(proto, True))
    node = next(n for n in result.graph.node if n.op_type == "MatMul")
    for old, new in ((proto, result), (graph.node[0], node), (graph, result.graph)):
        assert list(old.metadata_props) == list(new.metadata_props)
        assert old.doc_string == new.doc_string
    assert (result.producer_name, result.domain, result.model_version) == ("me", "mine", 7)
    assert list(result.configuration) == list(proto.configuration)
    assert list(node.device_configurations) == list(graph.node[0].device_configurations)
    assert list(result.graph.quantization_annotation) == list(graph.quantization_annotation)
    assert result.graph.initializer[0].doc_string == "tensor"
    assert result.graph.input[0].doc_string == "input"
    assert list(result.graph.output[0].metadata_props) == list(graph.output[0].metadata_props)


def test_overloads_of_a_function() -> None:
    functions = '<domain: "my", opset_import: ["" : 17]> F (p) => (o) { o = Neg(p) }'
    proto = Edge(text("y=my.F(x)", ir=10, more=MINE, functions=functions)).proto()
    proto.functions[0].overload = proto.graph.node[0].overload = "second"
    model = _convert(proto, True)
    assert [n.op_type for n in nodes(model.ir)] == ["Cast", "Neg", "Cast"]
