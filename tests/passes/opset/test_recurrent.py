"""A recurrent layer of one step becomes products, so that one fused graph takes the model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dmlprep.directml.placement import place
from dmlprep.directml.targets import find_target
from dmlprep.passes.opset.opset_pass import OpsetOptions, OpsetPass
from dmlprep.pipeline.placing import context_for
from tests.passes.opset.models import opened, run
from tests.passes.precision.graphs import proto_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
BATCH, WIDTH, HIDDEN = 2, 5, 3


def _layer(op: str, *, steps: int = 1, bias: bool = True, state: bool = True, **attributes: object) -> onnx.ModelProto:
    """A layer between two Relus: Y, Y_h and, of an LSTM, Y_c."""
    rng, gates = np.random.default_rng(7), GATES[op] * HIDDEN
    shapes = {"W": (1, gates, WIDTH), "R": (1, gates, HIDDEN)} | ({"B": (1, 2 * gates)} if bias else {})
    weights = [
        helper.make_tensor(
            name, TensorProto.FLOAT, shape, rng.normal(size=shape).astype(np.float32).tobytes(), raw=True
        )
        for name, shape in shapes.items()
    ]
    states = [name for name in ("h", "c")[: 2 if op == "LSTM" else 1] if state]
    inputs = {"x": (steps, BATCH, WIDTH)} | dict.fromkeys(states, (1, BATCH, HIDDEN))
    outputs = {"y": (steps, 1, BATCH, HIDDEN), "y_h": (1, BATCH, HIDDEN)}
    if op == "LSTM":
        outputs["y_c"] = (1, BATCH, HIDDEN)
    read = ["a", "W", "R", "B" if bias else "", "", *states]
    while not read[-1]:
        read.pop()
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="before"),
        helper.make_node(op, read, ["made", *list(outputs)[1:]], name="layer", hidden_size=HIDDEN, **attributes),
        helper.make_node("Relu", ["made"], ["y"], name="after"),
    ]
    infos = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in side.items()]
        for side in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "g", *infos, weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def _brought(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """The model after the step, and its fused graphs."""
    target = find_target("ort-1.30")
    model = opened(proto)
    OpsetPass(OpsetOptions()).run(model, context_for(target))
    onnx.checker.check_model(proto_of(model), full_check=True)
    placed = place(model, target)
    assert placed.compute_on_cpu == []
    return proto_of(model), placed.partitions


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("reset", [0, 1])
def test_one_step_is_written_as_products(op: str, bias: bool, state: bool, reset: int) -> None:
    proto = _layer(op, bias=bias, state=state, **({"linear_before_reset": reset} if op == "GRU" else {}))
    result, partitions = _brought(proto)
    assert partitions == 1
    assert not {n.op_type for n in result.graph.node} & set(GATES)
    rng = np.random.default_rng(3)
    feeds = {
        i.name: rng.normal(size=[d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in proto.graph.input
    }
    for want, got in zip(run(proto, feeds), run(result, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("LSTM", {"steps": 2}),
        ("LSTM", {"direction": "reverse"}),
        ("LSTM", {"clip": 1.0}),
        ("GRU", {"activations": ["Sigmoid", "Relu"]}),
    ],
)
def test_other_layers_stay(op: str, options: dict[str, object]) -> None:
    result, _ = _brought(_layer(op, **options))  # type: ignore[arg-type]
    assert [n.op_type for n in result.graph.node] == ["Relu", op, "Relu"]


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("weights", ["W", "R"])
@pytest.mark.parametrize("shape", [[], [4], [4, 3], [1, 1, 1, 3], [1, 7, 3], [2, 4, 3]])
def test_layers_whose_weights_do_not_fit_stay(op: str, weights: str, shape: list[int]) -> None:
    proto = _layer(op)
    tensor = next(one for one in proto.graph.initializer if one.name == weights)
    tensor.CopyFrom(helper.make_tensor(weights, TensorProto.FLOAT, shape, np.ones(shape, np.float32).ravel().tolist()))
    model = opened(proto)
    OpsetPass(OpsetOptions()).run(model, context_for(find_target("ort-1.30")))
    assert [n.op_type for n in proto_of(model).graph.node] == ["Relu", op, "Relu"]
