"""Raise a model to a newer opset with onnx's converter, which sees the model without its large weights.

Below opset 11, onnx 1.23.2's converter makes errors and lacks some operators. This module corrects the model before and
after the converter runs.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.analysis.schemas import schema_at, since_versions
from dmlprep.graph.model import Frozen, Model, freeze, thaw
from dmlprep.graph.model.checking import check
from dmlprep.graph.model.frozen import stub_index
from dmlprep.graph.model.texts import text_of
from dmlprep.graph.model.walk import label, nodes
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.opset.handling import relabels_upward
from dmlprep.passes.opset.lowering import lower
from dmlprep.runtime.tools.onnx_converter import convert

_AGAIN = "export the model again with a newer opset"
_BROADCAST = {"Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Greater", "Less", "Pow"}


def must_raise(model: Model, target: int) -> bool:
    """Return whether the model needs onnx's converter to reach ``target``, because relabelling nodes is not enough."""
    before = model.opset
    history = since_versions()
    return any(
        before < since <= target and not relabels_upward(str(node.op_type), since)
        for node in nodes(model.ir)
        if not node.domain
        for since in history.get(str(node.op_type), ())
    )


def raise_opset(model: Model, target: int) -> int:
    """Raise ``model`` to opset ``target`` with onnx's converter, in place. Model-local functions are inlined first.

    Returns the number of weights that were also listed as graph inputs, as IR 3 requires, and no longer are.

    Raises:
        ModelRefused: DP104, a node cannot be raised, or onnx's converter fails, or its output is not valid; or DP102 or
            DP014 from inlining. The model is then unchanged.
    """
    before = model.opset
    work = model.copy()
    if work.ir.functions:
        lower(work, before, inline=frozenset(work.ir.functions))
    if before < 7:
        _align_broadcasts(work)
    old_resizes = _resizes_of_opset_10(work) if before < 11 <= target else {}
    frozen = freeze(work.ir, attributes=False)
    weights = {t.name: t for t in frozen.proto.graph.initializer if stub_index(t) is not None}
    converted = convert(_without_weights(frozen.proto, weights), target)
    stands = {o.domain: o.version for o in converted.opset_import}
    if stands.get("", stands.get("ai.onnx", 0)) != target:
        raise _not_raised(f"onnx's converter left the model at opset {stands.get('')}")
    dropped = _put_back(converted, frozen.proto, weights)
    work.ir = thaw(Frozen(converted, frozen.tensors))
    _keep(model, work)
    for node in nodes(work.ir):
        if node.op_type == "Resize":
            for name, value in old_resizes.get(node.outputs[0].name or "", {}).items():
                node.attributes[name] = ir.AttrString(name, value)
        if not node.domain and schema_at(str(node.op_type), target) is None:
            text = f"{node.op_type} does not exist at opset {target}, but onnx's converter did not replace it"
            raise _not_raised(text, node, "choose an opset that has it, or export the model again")
    if wrong := check(work.ir):
        raise _not_raised(f"the model raised from opset {before} to {target} is not valid: {wrong}")
    model.become(work)
    return dropped


def weights_out_of_inputs(model: Model) -> int:
    """Remove weights from the graph inputs of a model of IR 3 or older, in place, and return how many were removed.

    It also sets an IR version of 4 or higher that fits the opset. A model of IR 4 or newer is unchanged (0).
    """
    if model.ir.ir_version >= 4:
        return 0
    graph = model.ir.graph
    own = [value for value in graph.inputs if value.name not in graph.initializers]
    dropped = len(graph.inputs) - len(own)
    graph.inputs.clear()
    graph.inputs.extend(own)
    opsets = [onnx.helper.make_operatorsetid("", model.opset)]
    model.ir.ir_version = max(4, onnx.helper.find_min_ir_version_for(opsets, ignore_unknown=True))
    return dropped


def _without_weights(proto: onnx.ModelProto, weights: dict[str, onnx.TensorProto]) -> onnx.ModelProto:
    """A copy of the model in which the large ``weights`` are graph inputs, not initializers."""
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    small = [t for t in proto.graph.initializer if t.name not in weights]
    del light.graph.initializer[:]
    light.graph.initializer.extend(small)
    known = {i.name for i in light.graph.input}
    # This includes small initializers: below IR 4 the converter needs every initializer among the inputs.
    for tensor in (*weights.values(), *(small if light.ir_version < 4 else ())):
        if tensor.name not in known:
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            light.graph.input.append(info)
    return light


def _put_back(converted: onnx.ModelProto, before: onnx.ModelProto, weights: dict[str, onnx.TensorProto]) -> int:
    """Turn the inputs in ``weights`` back into initializers of ``converted``, in place, and set its IR version.

    Graph inputs and outputs become those of ``before``. Returns the number of inputs of ``before`` that are left out
    because they are weights (IR 3).
    """
    converted.graph.initializer.extend(weights.values())
    names = {t.name for t in converted.graph.initializer}
    overridable = before.ir_version >= 4
    own = [i for i in before.graph.input if overridable or i.name not in names]
    dropped = len(before.graph.input) - len(own)
    del converted.graph.input[:]
    converted.graph.input.extend(own)
    del converted.graph.output[:]
    converted.graph.output.extend(before.graph.output)
    needed = onnx.helper.find_min_ir_version_for(list(converted.opset_import), ignore_unknown=True)
    converted.ir_version = max(before.ir_version, needed, 4)
    return dropped


def _keep(before: Model, after: Model) -> None:
    """Copy what onnx's converter loses into ``after``: names, texts and metadata of model, graph, nodes and values."""
    old, new = before.ir, after.ir
    new.metadata_props.update(old.metadata_props)
    new.doc_string = old.doc_string
    new.producer_name, new.producer_version = old.producer_name, old.producer_version
    new.domain, new.model_version = old.domain, old.model_version
    new.graph.metadata_props.update(old.graph.metadata_props)
    new.graph.name, new.graph.doc_string = old.graph.name, old.graph.doc_string
    producers: dict[str, ir.Node] = {v.name: node for node in nodes(old) for v in node.outputs if v.name}
    names = Names(new)
    for node in nodes(new):
        was = next((producers[v.name] for v in node.outputs if v.name in producers), None)
        if was is None:
            continue
        # Where the converter wrote several nodes for one, a node other than the last may have its name.
        node.name = node.name or (names.node(was.name) if was.name else None)
        node.doc_string = node.doc_string or was.doc_string
        node.metadata_props.update(was.metadata_props)
        for value, origin in zip(node.outputs, was.outputs, strict=False):
            if value.name == origin.name:
                value.metadata_props.update(origin.metadata_props)
                value.doc_string = value.doc_string or origin.doc_string


def _not_raised(what: str, node: ir.Node | None = None, fix: str = _AGAIN) -> ModelRefused:
    return ModelRefused(what, where=f"node {label(node)!r}" if node is not None else "", code="DP104", fix=fix)


def _align_broadcasts(model: Model) -> None:
    """Replace the attribute ``axis`` of Add, Mul and similar nodes below opset 7 by an Unsqueeze, in place.

    ``axis`` says where the second operand's dimensions begin in the first operand. onnx's converter handles it wrongly:
    its output is invalid.

    Raises:
        ModelRefused: the rank of an operand is unknown.
    """
    values, names = Knowledge.swept(model.ir), Names(model.ir)
    for node in list(nodes(model.ir)):
        if node.domain or node.op_type not in _BROADCAST or "axis" not in node.attributes:
            continue
        axis = node.attributes["axis"].as_int()
        second = node.inputs[1]
        ranks = values.rank(node.inputs[0]), values.rank(second)
        if ranks[0] is None or ranks[1] is None or second is None:
            text = f"{node.op_type} broadcasts an operand from axis {axis} on, but the rank of an operand is unknown"
            raise _not_raised(text, node)
        axes = range(ranks[1], ranks[0] - axis % ranks[0])
        node.attributes.pop("axis")
        if not axes:
            continue
        name = names.new(f"{label(node)}/Unsqueeze")
        aligned = ir.Node("", "Unsqueeze", [second], [ir.AttrInt64s("axes", axes)], name=name)
        aligned.outputs[0].name = names.new(f"{name}/output")
        graph = node.graph
        assert graph is not None
        graph.insert_before(node, aligned)
        node.replace_input_with(1, aligned.outputs[0])


def _resizes_of_opset_10(model: Model) -> dict[str, dict[str, str]]:
    """The attributes that give each Upsample and Resize below opset 11 its old meaning at opset 11.

    Returns a map from the name of the node's output to its attributes. Old nodes compute position / scale, rounded
    down, or up where a nearest Resize shrinks. onnx's converter leaves the defaults of opset 11, which differ.

    Raises:
        ModelRefused: a nearest Resize enlarges one dimension and shrinks another, or its scales are unknown.
    """
    values = Knowledge.swept(model.ir)
    modes: dict[str, dict[str, str]] = {}
    for node in nodes(model.ir):
        if node.domain or node.op_type not in ("Upsample", "Resize") or not node.outputs[0].name:
            continue
        rounding = "floor"
        if node.op_type == "Resize" and text_of(node, "mode", "nearest") == "nearest":
            scales = values.constant(node.inputs[1])
            if scales is None or ((scales > 1).any() and (scales < 1).any()):
                text = "a nearest Resize of opset 10 whose scales are unknown, or both enlarge and shrink"
                raise _not_raised(text, node, "export the model again with opset 11 or newer")
            # ONNX Runtime rounds up where it shrinks (upsamplebase.h, NearestMode::SIMPLE).
            rounding = "ceil" if (scales < 1).any() else "floor"
        modes[node.outputs[0].name] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": rounding}
    return modes
