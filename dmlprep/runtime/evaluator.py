"""Serve onnx's reference evaluator with the worker protocol, for originals that ONNX Runtime cannot load.

ONNX Runtime 1.24.4 cannot load models of opset 26 to 28. The proof needs their outputs, to compare them with the
lowered model. The evaluator computes every operator in numpy, by ONNX's own definition, in seconds instead of
milliseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx

from dmlprep.graph.model import protos
from dmlprep.process.wire import read_tensor
from dmlprep.runtime.serving import Refused, Worker
from dmlprep.runtime.wire import dims_to_fields


class _NoOrtValue:
    """A placeholder: no value is an OrtValue, because the evaluator works on numpy arrays only."""


class _Numpy:
    OrtValue = _NoOrtValue


class EvaluatorWorker(Worker):
    """A worker that serves models with ``onnx.reference.ReferenceEvaluator`` instead of ONNX Runtime."""

    def __init__(self, device: str, exchange: Path, out: BinaryIO) -> None:
        super().__init__(device, exchange, out, ort=_Numpy)

    def hello(self) -> None:
        """Report the version of onnx."""
        self.say("device", "onnx", onnx.__version__)

    def load(self, number: str, model: str) -> None:
        """Load a model, and report its inputs and outputs."""
        from onnx.reference import ReferenceEvaluator

        self.options = {}
        try:
            proto = onnx.load(model)
            _respell(proto)
            self.sessions[number] = ReferenceEvaluator(proto, new_ops=[_gather_elements()])
        except Exception as error:
            raise Refused("load", f"{type(error).__name__}: {error}") from error
        weights = {t.name for t in proto.graph.initializer}
        inputs = [value for value in proto.graph.input if value.name not in weights]
        for word, values in (("input", inputs), ("output", proto.graph.output)):
            for value in values:
                self.say(word, value.name, *_described(value.type))

    def feed(self, name: str, kind: str, file: str, *dims: str) -> None:
        """Read an input from its file."""
        # bfloat16 and similar types are numpy types here (ml_dtypes), not values of ONNX Runtime.
        self.feed_value(name, read_tensor(self.exchange / file, kind, tuple(map(int, dims)), mapped=True))

    def run(self, number: str) -> None:
        """Run a model, and report its results."""
        feeds, names = self.fed()
        session = self.sessions[number]
        names = names or list(session.output_names)
        try:
            with np.errstate(all="ignore"):
                results = session.run(names, feeds)
        except Exception as error:
            raise Refused("run", f"{type(error).__name__}: {error}") from error
        for name, result in zip(names, results, strict=True):
            self.answer(name, result)


def _gather_elements() -> Any:
    """Return a class for GatherElements without the limit in the evaluator of onnx 1.23: 64 elements along the axis."""
    from onnx.reference.op_run import OpRun

    class GatherElements(OpRun):  # type: ignore[misc, unused-ignore]
        def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray]:
            axis %= data.ndim
            reached = tuple(slice(None if i == axis else size) for i, size in enumerate(indices.shape))
            return (np.take_along_axis(data[reached], indices, axis),)

    return GatherElements


_SPELLINGS = {b"bilinear": b"linear", b"bicubic": b"cubic"}
"""New names for modes of GridSample before opset 20. The evaluator of onnx 1.23 only knows the new names."""


def _respell(proto: onnx.ModelProto) -> None:
    for node in protos.nodes(proto):
        for attribute in node.attribute:
            if node.op_type == "GridSample" and attribute.name == "mode":
                attribute.s = _SPELLINGS.get(attribute.s, attribute.s)


def _described(kind: onnx.TypeProto) -> list[str]:
    """Return element type and dimensions of a value, as fields of the worker's protocol.

    For a value that is not a tensor, the only field is the name of its kind, such as ``sequence_type``.
    """
    if not kind.HasField("tensor_type"):
        return [kind.WhichOneof("value") or "unknown"]
    tensor = kind.tensor_type
    name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    if tensor.elem_type == onnx.TensorProto.STRING:
        name = "string"
    dims: list[Any] = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    return [name, *dims_to_fields(dims)]
