"""Convert to FP16 with onnxconverter-common. It gets the model without large weights, and its result is checked."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.model import Frozen, Model, freeze, protos, thaw
from dmlprep.graph.model.checking import check
from dmlprep.graph.model.frozen import stub_index
from dmlprep.graph.model.walk import attribute_graphs, label, nodes
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.precision.fp16 import FP16_MAX, FP16_TINY, cast_tensor, measure
from dmlprep.record import Finding, finding
from dmlprep.runtime.tools import onnxconverter_common as engine

_FIX = 'use engine = "own", or leave the model in FP32'


def convert_with_onnxconverter_common(
    model: Model, *, keep_io: bool, keep_operators: set[str], keep: dict[int, str]
) -> list[Finding] | None:
    """Convert ``model`` to FP16 in place with onnxconverter-common.

    Args:
        keep_io: whether graph inputs and outputs keep their types.
        keep_operators: operators that stay in FP32.
        keep: ``id(node)`` of nodes that stay in FP32 -> why.

    Returns:
        findings about weights that are clamped to 65504 or become zero. ``None``: the model contains FP16 already, and
        is not converted.

    Raises:
        ModelRefused: the converter failed, or wrote an invalid model. ``model`` may be changed already.
    """
    if engine.holds_fp16(freeze(model.ir).proto):
        return None
    names = _name_nodes(model, keep)
    frozen = freeze(model.ir)
    before = _initializers(frozen.proto)
    findings = _findings(model)
    converted = engine.convert_to_fp16(frozen.proto, keep_io=keep_io, keep_operators=keep_operators, keep_nodes=names)
    if len(converted.functions) != len(model.ir.functions) or not before <= _initializers(converted):
        raise ModelRefused("onnxconverter-common dropped a part of the model", code="DP403", fix=_FIX)
    model.ir = thaw(Frozen(converted, _cast(converted, frozen.tensors)))
    fault = check(model.ir)
    if fault:
        raise ModelRefused(f"onnxconverter-common returned an invalid model: {fault}", code="DP403", fix=_FIX)
    return findings


def _initializers(proto: onnx.ModelProto) -> set[str]:
    return {t.name for t in proto.graph.initializer}


def _name_nodes(model: Model, keep: dict[int, str]) -> list[str]:
    """Give all nodes unique names, in place, and return the names of the nodes in ``keep``.

    onnxconverter-common identifies nodes by name.
    """
    names, used_names = Names(model.ir), set[str]()
    for node in nodes(model.ir):
        if not node.name or node.name in used_names:
            node.name = names.node(node.name or label(node))
        used_names.add(node.name)
    return [n.name for n in nodes(model.ir) if id(n) in keep and n.name]


def _cast(proto: onnx.ModelProto, held: list[ir.TensorProtocol]) -> list[ir.TensorProtocol]:
    """Return the large tensors for the converted model, in which stubs (placeholders) represent them.

    A tensor is cast if the converter changed the type of its stub.
    """
    tensors = list(held)
    for tensor in protos.tensors(proto):
        index = stub_index(tensor)
        if index is not None and tensor.data_type != held[index].dtype.value:
            tensors[index] = cast_tensor(held[index], ir.DataType(tensor.data_type), limit=FP16_MAX)
    return tensors


def _findings(model: Model) -> list[Finding]:
    findings = []
    tensors = {v.name or "": v.const_value for v in model.ir.graph.initializers.values()}
    for node in nodes(model.ir):
        value = node.attributes.get("value")
        if node.op_type in ("Constant", "ConstantOfShape") and value is not None and not value.is_ref():
            tensors[label(node)] = value.as_tensor() if value.type == ir.AttributeType.TENSOR else None
        for _, graph in attribute_graphs(node):
            tensors |= {v.name or "": v.const_value for v in graph.initializers.values()}
    for name, tensor in tensors.items():
        if tensor is None or tensor.dtype != ir.DataType.FLOAT:
            continue
        loss = measure(tensor)
        if loss.over:
            text = f"{loss.over} of {loss.size} values of {name!r} exceed {FP16_MAX:g} (largest {loss.peak:g})"
            text += " and are clamped to it"
            findings.append(finding("DP401", text, node=name, over=loss.over, size=loss.size, peak=loss.peak))
        if loss.flushed:
            text = f"{loss.flushed} of {loss.size} values of {name!r} are below {FP16_TINY:.3g} and become zero; "
            text += f"relative error of the whole {loss.relative:.2g}"
            findings.append(
                finding("DP402", text, node=name, flushed=loss.flushed, size=loss.size, relative=loss.relative)
            )
    return findings
