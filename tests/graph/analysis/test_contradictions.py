"""Sizes that a node cannot take are refused where ONNX Runtime fails, and only there."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets import find_target
from dmlprep.graph.analysis.shapes import Inference
from dmlprep.graph.model import Model
from dmlprep.passes import Context, make_pass

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'

# name: input x with the size N, body, weights; N = 3 fits, N = 2 does not
CASES = {
    "Gemm": ("float[2, N] x", "y = Gemm (x, w)", {"w": (3, 4)}),
    "Conv": ("float[1, N, 8, 8] x", "y = Conv (x, w)", {"w": (4, 3, 3, 3)}),
    "ConvTranspose": ("float[1, N, 8, 8] x", "y = ConvTranspose (x, w)", {"w": (3, 4, 3, 3)}),
    "LSTM state": (
        "float[5, N, 3] x",
        "y = LSTM <hidden_size = 4> (x, w, r, b, , h)",
        {"w": (1, 16, 3), "r": (1, 16, 4), "b": (1, 32), "h": (1, 3, 4)},
    ),
    "GRU weight": ("float[5, 2, N] x", "y = GRU <hidden_size = 4> (x, w, r)", {"w": (1, 12, 3), "r": (1, 12, 4)}),
    "Reshape": ("float[N, 2] x", "y = Reshape (x, s)", {"s": np.array([3, 2])}),
    "PRelu": ("float[1, N, 2, 2] x", "y = PRelu (x, w)", {"w": (3, 1, 1)}),
    "LayerNormalization": ("float[2, N] x", "y = LayerNormalization (x, w)", {"w": (3,)}),
    "InstanceNormalization": ("float[1, N, 2, 2] x", "y = InstanceNormalization (x, w, w)", {"w": (3,)}),
    "BatchNormalization": ("float[1, N, 2, 2] x", "y = BatchNormalization (x, w, w, w, w)", {"w": (3,)}),
    "Einsum": ("float[N, 4] x", 'y = Einsum <equation = "ij,jk->ik"> (w, x)', {"w": (2, 3)}),
    "Gather": ("float[N, 3] x", "y = Gather (x, s)", {"s": np.array([2])}),
    "GatherND": ("float[N, 3] x", "y = GatherND (x, s)", {"s": np.array([[2]])}),
    "ScatterND": ("float[2, N] x", "y = ScatterND (x, s, w)", {"s": np.array([[0]]), "w": (1, 3)}),
    "SpaceToDepth": ("float[1, 1, N, 3] x", "y = SpaceToDepth <blocksize = 3> (x)", {}),
    "Split": ("float[N, 3] x", "y, z = Split <axis = 0> (x, s)", {"s": np.array([1, 2])}),
    "Expand": ("float[N, 3] x", "y = Expand (x, s)", {"s": np.array([3, 3])}),
    "Concat": ("float[2, N] x", "y = Concat <axis = 0> (x, w)", {"w": (2, 3)}),
    "MatMul": ("float[2, N] x", "y = MatMul (x, w)", {"w": (3, 4)}),
}


def model(name: str, size: int) -> onnx.ModelProto:
    text, body, weights = CASES[name]
    proto = onnx.parser.parse_model(f"{HEAD} g ({text.replace('N', str(size))}) => (float y) {{ {body} }}")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    for key, what in weights.items():
        array = np.ones(what, np.float32) if isinstance(what, tuple) else what.astype(np.int64)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, key))
    return proto


def runs(proto: onnx.ModelProto) -> bool:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
        session.run(None, {"x": np.ones(shape, np.float32)})
    except Exception:
        return False
    return True


@pytest.mark.parametrize("name", list(CASES))
def test_what_onnxruntime_runs_is_accepted(name: str) -> None:
    proto = model(name, 3)
    assert runs(proto)
    Inference.of(ir.from_proto(proto))


@pytest.mark.parametrize("name", list(CASES))
def test_what_onnxruntime_cannot_run_is_refused(name: str) -> None:
    proto = model(name, 2)
    assert not runs(proto)
    with pytest.raises(ModelRefused) as caught:
        Inference.of(ir.from_proto(proto))
    assert caught.value.code == "DP202"
    assert caught.value.where.startswith("node ")


@pytest.mark.parametrize(("size", "fits"), [(5, True), (4, True), (3, False)])
def test_a_window_that_does_not_fit(size: int, fits: bool) -> None:
    text = f"g (float[1, 1, {size}, 5] x) => (float y) {{ y = MaxPool <kernel_shape = [5, 5]> (x) }}"
    proto = onnx.parser.parse_model(HEAD + text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert runs(proto) == fits
    if fits:
        Inference.of(ir.from_proto(proto))
    else:
        with pytest.raises(ModelRefused, match="a window of 5 does not fit in 3"):
            Inference.of(ir.from_proto(proto))


def test_a_window_larger_than_its_input() -> None:
    def model(padding: str) -> Model:
        text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 1, h, 4] x) => (float[n, 1, a, b] y) <float[1, 1, 3, 3] w = {{1, 1, 1, 1, 1, 1, 1, 1, 1}}> {{
          y = Conv<{padding}>(x, w)
        }}"""
        return Model(ir.from_proto(onnx.parser.parse_model(text)))

    with pytest.raises(ModelRefused, match="window spans 3"):
        make_pass("pin", {"sizes": {"n": 1, "h": 2}}).run(model("strides = [1, 1]"), Context(find_target()))
    for padding in ("pads = [1, 1, 1, 1]", 'auto_pad = "SAME_UPPER"'):
        assert make_pass("pin", {"sizes": {"n": 1, "h": 2}}).run(model(padding), Context(find_target()))


def test_no_index_is_outside() -> None:
    text = f"{HEAD} g (float[2, 3] x) => (float[0, 3] y) <int64[0, 1] s = {{}}> {{ y = GatherND (x, s) }}"
    Inference.of(ir.from_proto(onnx.parser.parse_model(text)))
