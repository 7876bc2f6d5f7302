"""Shapes that a file notes at values inside its graph, where they contradict what follows from the nodes.

ONNX Runtime warns of them and takes the shape that follows; onnx's checker refuses the model. Exporters leave them
behind where they change a graph after its inference: onnxruntime-genai's builder notes a scalar at each constant.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from dmlprep.graph.model import protos
from dmlprep.graph.model.checking import call_by_their_owner, weightless
from dmlprep.graph.model.frozen import Frozen
from dmlprep.graph.model.repairs import first_three
from dmlprep.process.onnx_worker import calls
from dmlprep.process.onnx_worker.door import OnnxError
from dmlprep.record import Finding, finding


def drop_wrong_shapes(model: ir.Model, frozen: Frozen) -> list[Finding]:
    """Take the shapes from values inside the main graph that contradict what onnx infers without them, with a note.

    A type that contradicts stays: ONNX Runtime refuses the model then. With a note, ``frozen`` is out of date.

    Raises:
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    if not frozen.proto.graph.value_info:
        return []
    proto = protos.copy(weightless(frozen))
    call_by_their_owner(proto)
    if _agrees(proto):
        return []
    noted = {v.name: v.type for v in frozen.proto.graph.value_info}
    for value in proto.graph.value_info:  # of the copy
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")
    try:
        inferred = {v.name: v.type for v in calls.infer_shapes(proto, propagate=False).graph.value_info}
    except OnnxError:
        return []
    wrong = [name for name, type_ in noted.items() if name in inferred and _contradict(type_, inferred[name])]
    if not wrong:
        return []
    values = {value.name: value for node in model.graph for value in node.outputs}
    for name in wrong:
        if name in values:
            values[name].shape = None
    names = first_three(wrong)
    text = f"the file notes shapes inside the graph that contradict its nodes ({names}): what follows was taken"
    return [finding("DP018", f"{text}, as ONNX Runtime does", values=wrong[:100], count=len(wrong))]


def _agrees(proto: onnx.ModelProto) -> bool:
    try:
        calls.infer_shapes(proto, check_type=True, strict=True, propagate=False)
    except OnnxError:
        return False
    return True


def _contradict(noted: onnx.TypeProto, inferred: onnx.TypeProto) -> bool:
    """Whether two shapes differ in rank or in a size that both give."""
    a, b = noted.tensor_type, inferred.tensor_type
    if not (a.HasField("shape") and b.HasField("shape")):
        return False
    if len(a.shape.dim) != len(b.shape.dim):
        return True
    pairs = zip(a.shape.dim, b.shape.dim, strict=True)
    return any(x.HasField("dim_value") and y.HasField("dim_value") and x.dim_value != y.dim_value for x, y in pairs)
