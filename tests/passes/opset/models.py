"""Models in ONNX text, brought to another opset and run."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context
from dmlprep.passes.opset import OpsetOptions, OpsetPass

Array = np.ndarray[Any, Any]


def parse(text: str) -> onnx.ModelProto:
    """A model from ONNX text."""
    return onnx.parser.parse_model(text)


def opened(proto: onnx.ModelProto) -> Model:
    """The model in memory."""
    return Model(ir.from_proto(proto))


def bring(proto: onnx.ModelProto, version: int | Literal["auto"], **options: Any) -> tuple[onnx.ModelProto, Context]:
    """The model at another opset, and the context that the pass filled."""
    model, context = opened(proto), Context(find_target())
    OpsetPass(OpsetOptions(version=version, **options)).run(model, context)
    onnx.checker.check_model(ir.to_proto(model.ir), full_check=True)
    return ir.to_proto(model.ir), context


def run(proto: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    """The outputs in ONNX Runtime on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, feeds)
    return found


def reference(proto: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    """The outputs in onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    found: list[Any] = ReferenceEvaluator(proto).run(None, feeds)
    return found


def operators(proto: onnx.ModelProto) -> list[str]:
    """The operators of the main graph, in order."""
    return [node.op_type for node in proto.graph.node]


def opset(proto: onnx.ModelProto, domain: str = "") -> int:
    """The version of a domain."""
    return next(o.version for o in proto.opset_import if o.domain == domain)


def close(got: list[Any], wanted: list[Any], bound: float = 1e-5) -> None:
    """Equal within ``bound`` of the largest value."""
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        assert np.shape(g) == np.shape(w)
        scale = max(1.0, float(np.abs(np.asarray(w, np.float64)).max(initial=0)))
        np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), rtol=0, atol=bound * scale)
