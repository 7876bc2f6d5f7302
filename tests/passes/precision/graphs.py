"""Small models in ONNX text for the tests of precision, and how to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from dmlprep.graph.model import Model

Array = np.ndarray[Any, Any]


def model_of(text: str, weights: Mapping[str, Array] | None = None) -> Model:
    """A model from ONNX text; ``weights`` become initializers of the main graph."""
    proto = onnx.parser.parse_model(text)
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return Model(ir.from_proto(proto))


def proto_of(model: Model) -> onnx.ModelProto:
    """The model as protobuf, weights included."""
    return ir.to_proto(model.ir)


def _session(data: bytes, options: ort.SessionOptions) -> ort.InferenceSession:
    """Load at the first level that takes the model: ONNX Runtime 1.24.4 fuses FP16 norms that it then refuses."""
    levels = ort.GraphOptimizationLevel
    for level in (levels.ORT_ENABLE_ALL, levels.ORT_ENABLE_BASIC, levels.ORT_DISABLE_ALL):
        options.graph_optimization_level = level
        try:
            return ort.InferenceSession(
                data, options, ["CPUExecutionProvider"], disabled_optimizers=["NchwcTransformer"]
            )
        except Fail:
            if level == levels.ORT_DISABLE_ALL:
                raise
    raise AssertionError("no level was tried")


def run(
    model: Model | onnx.ModelProto, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None
) -> dict[str, Any]:
    """Run on the CPU, without the optimizer that crashes over FP16 Transposes; feeds are cast to the inputs' types."""
    proto = model if isinstance(model, onnx.ModelProto) else proto_of(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = _session(proto.SerializeToString(), options)
    names = list(outputs) if outputs is not None else [o.name for o in session.get_outputs()]
    kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32, "tensor(double)": np.float64}
    given = {
        i.name: np.asarray(feeds[i.name], kinds[i.type]) if i.type in kinds else feeds[i.name]
        for i in session.get_inputs()
    }
    return dict(zip(names, session.run(names, given), strict=True))


def deep(layers: int, planted: int) -> tuple[str, dict[str, np.ndarray]]:
    """A residual network; at one layer a square leaves the range of FP16, and its root brings it back."""
    rng = np.random.default_rng(0)
    lines, weights, value = [], {"two": np.float32(2), "big": np.float32(900), "less": np.float32(1 / 900)}, "x"
    for i in range(layers):
        weights[f"w{i}"] = (rng.standard_normal((16, 16)) / 8).astype(np.float32)
        if i == planted:
            lines += [
                f"[grow] p0 = Mul({value}, big)",
                "[square] p1 = Pow(p0, two)",
                "[root] p2 = Sqrt(p1)",
                "[back] p3 = Mul(p2, less)",
            ]
            value = "p3"
        lines += [
            f"[mm{i}] a{i} = MatMul({value}, w{i})",
            f"[relu{i}] b{i} = Relu(a{i})",
            f"[add{i}] c{i} = Add(b{i}, {value})",
        ]
        value = f"c{i}"
    body = "\n".join([*lines, f"y = Tanh({value})"])
    return f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) {{ {body} }}', weights


class InProcess:
    """A ``Runner`` without child processes, which counts its runs."""

    def __init__(self, feeds: Sequence[Mapping[str, Array]]) -> None:
        self._feeds = [dict(f) for f in feeds]
        self.runs = 0

    def run(self, model: Model, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        self.runs += 1
        return run(model, feeds, outputs)

    def feeds(self, model: Model, count: int = 1) -> list[dict[str, Array]]:
        return self._feeds[:count]


def feeds_for(model: Model, seed: int = 0) -> dict[str, Array]:
    """One feed: normal numbers, integers 0 and 1, booleans; named dimensions become 2."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for value in model.ir.graph.inputs:
        if value.is_initializer():
            continue
        assert value.shape is not None
        assert value.dtype is not None
        shape = [d if isinstance(d, int) else 2 for d in value.shape]
        if value.dtype == ir.DataType.BOOL:
            found[value.name or ""] = rng.integers(0, 2, shape).astype(bool)
        elif value.dtype.is_integer():
            found[value.name or ""] = rng.integers(0, 2, shape).astype(value.dtype.numpy())
        else:
            found[value.name or ""] = rng.standard_normal(shape).astype(np.float32)
    return found


def relative(reference: Array, result: Array) -> float:
    """max|difference| / max|reference|; infinity where the shapes differ or the result is not finite."""
    if reference.shape != result.shape or not np.isfinite(result.astype(np.float64)).all():
        return float("inf")
    wide = reference.astype(np.float64)
    return float(np.abs(wide - result.astype(np.float64)).max(initial=0) / max(np.abs(wide).max(initial=0), 1e-30))
