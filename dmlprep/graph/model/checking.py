"""onnx's checker and shape inference on a model without its weights, in the process of ``process.onnx_worker``.

Large initializers are graph inputs meanwhile. So a check of a 5 GB model needs megabytes, and protobuf's limit of 2 GiB
does not apply.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from pathlib import Path

import onnx
import onnx_ir as ir

from dmlprep.core.errors import InputError, ToolFailed
from dmlprep.graph.model import protos
from dmlprep.graph.model.frozen import Frozen, freeze, stub_index
from dmlprep.process.onnx_worker import calls
from dmlprep.process.onnx_worker.door import OnnxError

_OWNER = "com.microsoft"


def weightless(model: ir.Model | Frozen) -> onnx.ModelProto:
    """Return the model with its large initializers as inputs of the main graph.

    Large are those of more than 1024 bytes. If ``model`` is a ``Frozen``, the references in it are large. The result
    may be ``model.proto`` itself: do not change it.
    """
    frozen = freeze(model, attributes=False) if isinstance(model, ir.Model) else model.completed()
    proto = frozen.proto
    if not frozen.tensors:
        return proto
    if frozen is model:
        proto = protos.copy(frozen.proto)
    # Before IR 4 every initializer is an input as well; a weight that is removed leaves a plain input, as here.
    known = {i.name for i in proto.graph.input}
    for graph in protos.graphs(proto):
        small = [t for t in graph.initializer if stub_index(t) is None]
        if len(small) == len(graph.initializer):
            continue
        for tensor in graph.initializer:
            if stub_index(tensor) is not None and tensor.name not in known:
                known.add(tensor.name)
                kind = proto.graph.input.add(name=tensor.name).type.tensor_type
                kind.elem_type = tensor.data_type
                kind.shape.SetInParent()
                for size in tensor.dims:
                    kind.shape.dim.add(dim_value=size)
        copies = onnx.GraphProto(initializer=small)
        del graph.initializer[:]
        graph.initializer.extend(copies.initializer)
    return proto


def check(model: ir.Model, *, full: bool = True, frozen: Frozen | None = None) -> str:
    """Run onnx's checker, with strict shape inference if ``full``; ``model`` is not changed.

    ``frozen`` is the frozen form of the model, if it exists; it saves time.

    Returns:
        the first lines of the error as one line, empty when the model is valid.

    Raises:
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    proto = weightless(frozen or model)
    if frozen is not None and proto is frozen.proto:
        proto = protos.copy(proto)
    must_infer = full and not (frozen is not None and frozen.inferred)
    try:
        call_by_their_owner(proto)
        _spell_out(proto)
        typed = [v for v in proto.graph.input if v.type.tensor_type.elem_type]
        if shapeless := [v for v in chain(typed, proto.graph.output) if not _has_shape(v.type)]:
            # The checker needs a shape, ONNX Runtime does not: infer without one, then give the checker any shape.
            if must_infer:
                calls.infer_shapes(proto, check_type=True, strict=True, propagate=False)
            for value in shapeless:
                value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, []))
        calls.check_model(proto)
        if must_infer and not shapeless:
            infer_strictly(proto, frozen)
    except ToolFailed as error:
        raise _blamed(error, proto) from None
    except OnnxError as error:
        return " ".join([line.strip() for line in str(error).splitlines() if line.strip()][:3]) or type(error).__name__
    return ""


def infer_strictly(proto: onnx.ModelProto, frozen: Frozen | None) -> None:
    """Infer types and shapes as a full check of onnx does; ``frozen`` keeps the result for ``infer_shapes``.

    The result is that of an inference which also follows the values of shape arithmetic.

    Args:
        proto: the weightless form of ``frozen``, or of a model without a frozen form.

    Raises:
        OnnxError: types or shapes contradict each other.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    try:
        inferred = calls.infer_shapes(proto, check_type=True, strict=True)
    except OnnxError:
        calls.infer_shapes(proto, check_type=True, strict=True, propagate=False)
    else:
        if frozen is not None:
            frozen.inferred[:] = [inferred]


def demand_valid(model: ir.Model, source: Path, frozen: Frozen | None = None) -> None:
    """Raise if onnx's checker (without strict shape inference) refuses a model; ``source`` is its file.

    Raises:
        InputError: DP003, the model is not valid.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    if wrong := check(model, full=False, frozen=frozen):
        what, fix = f"the model is not valid ONNX: {wrong}", "export it again; onnx.checker names the fault"
        raise InputError(what, where=str(source), code="DP003", fix=fix)


def _has_shape(proto: onnx.TypeProto) -> bool:
    which = proto.WhichOneof("value")
    return which is not None and (which != "tensor_type" or proto.tensor_type.HasField("shape"))


def is_own(domain: str, op_type: str, opset: int) -> bool:
    """Return True for an operator in ONNX's domain that only ONNX Runtime defines at ``opset``, not ONNX.

    These are SimplifiedLayerNormalization, and LayerNormalization below opset 17. ONNX Runtime's optimizer and some
    exporters write them.
    """
    below = op_type == "SimplifiedLayerNormalization" or (op_type == "LayerNormalization" and opset < 17)
    return below and domain in ("", "ai.onnx")


def call_by_their_owner(proto: onnx.ModelProto) -> None:
    """Move operators that only ONNX Runtime defines (``is_own``) into com.microsoft, in place.

    onnx's checker ignores that domain.
    """
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 1)
    own = [n for graph in protos.graphs(proto) for n in graph.node if is_own(n.domain, n.op_type, opset)]
    for node in own:
        node.domain = _OWNER
    if own and all(entry.domain != _OWNER for entry in proto.opset_import):
        proto.opset_import.add(domain=_OWNER, version=1)


def _spell_out(proto: onnx.ModelProto) -> None:
    """Write the default ``axes`` on each MeanVarianceNormalization without them, in place.

    onnx leaves them empty in the operator's function body, and then refuses the body.
    """
    for node in (node for graph in protos.graphs(proto) for node in graph.node):
        if node.op_type == "MeanVarianceNormalization" and not any(a.name == "axes" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("axes", [0, 2, 3]))


def infer_shapes(model: ir.Model | Frozen, *, strict: bool = False) -> onnx.ModelProto:
    """Infer shapes with onnx's data propagation, through subgraphs and functions.

    Returns:
        the weightless model with ``value_info`` for every value that could be inferred; ``model`` is not changed.

    Raises:
        OnnxError: onnx refuses the model; with ``strict`` also where types or shapes contradict each other.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    if isinstance(model, Frozen) and model.inferred:
        inferred, model.inferred[0] = model.inferred[0], None
        if inferred is not None:
            return inferred
        strict = True  # the result is the same, and the worker's answer may still be cached
    proto = weightless(model)
    try:
        return calls.infer_shapes(proto, check_type=strict, strict=strict)
    except ToolFailed as error:
        raise _blamed(error, proto) from None


def _blamed(error: ToolFailed, proto: onnx.ModelProto) -> ToolFailed:
    """Return ``error``, and name in its ``where`` the node of the main graph on which onnx crashes, if it is a crash.

    The search runs onnx again on the first n nodes, for several n.
    """
    if error.code != "DP012" or error.where:
        return error
    part = protos.copy(proto)
    del part.graph.output[:]

    def crashes(count: int) -> bool:
        del part.graph.node[:]
        part.graph.node.extend(proto.graph.node[:count])
        try:
            calls.infer_shapes(part)
        except (OnnxError, ToolFailed) as failure:
            return isinstance(failure, ToolFailed) and failure.code == "DP012"
        return False

    nodes = range(1, len(proto.graph.node) + 1)
    first = bisect_left(nodes, True, key=crashes)
    if first < len(nodes):
        node = proto.graph.node[first]
        error.where = f"node {node.name or node.op_type}"
    return error
