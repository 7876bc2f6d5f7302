"""Split with a part of size 0, even if no node reads it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    # With free sizes the session is created, and the other parts are wrong.
    empty = [v.name for v in node.outputs if v is not None and 0 in v.sizes]
    return f"output {', '.join(empty)} is empty" if empty else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Drop the parts of size 0: a Concat gets fewer inputs, other readers an empty constant."""
    axis = int(facts.attribute("axis", 0))
    values = [v for v in facts.outputs if v is not None and v.shape is not None]
    sizes = [size for v in values if isinstance(size := v.dims[axis], int)]
    if len(sizes) < len(facts.outputs):
        return "the sizes of its parts are unknown"
    parts = {index: size for index, size in enumerate(sizes) if size}
    if not parts:
        return "every part is empty"
    empty = [edit.node.outputs[index] for index in range(len(sizes)) if index not in parts]
    for index, value in enumerate(values):
        out = edit.node.outputs[index]
        is_needed = out.is_graph_output() or not all(_omits(use.node, empty) for use in out.uses())
        if index not in parts and is_needed and not value.static:
            return f"the empty part {value.name} has free sizes, and other operators than Concat read it"
    for index, value in enumerate(values):
        if index in parts:
            continue
        out = edit.node.outputs[index]
        for reader in {use.node for use in out.uses()}:
            if _omits(reader, empty):
                _concat_without(reader, out)
        if out.uses() or out.is_graph_output():
            edit.replace_output(edit.constant(np.zeros(value.sizes, value.numpy_type), "empty"), index)
    first, *more = parts
    if not more:
        return edit.become(edit.before("Identity", [edit.input()], like=edit.node.outputs[first]), first)
    outputs, sizes = [edit.new_value("part") for _ in parts], list(parts.values())
    inputs: list[ir.Value | None] = [edit.input()]
    attributes: dict[str, int | list[int]] = {"axis": axis}
    if facts.opset >= 13:
        inputs.append(edit.integers(sizes, "split"))
    else:
        attributes["split"] = sizes
    edit.graph.insert_before(edit.node, edit.new_node("Split", inputs, outputs, "split", attributes))
    for output, index in zip(outputs, parts, strict=True):
        edit.replace_output(output, index)
    edit.remove()
    return ""


def _omits(reader: ir.Node, empty: list[ir.Value]) -> bool:
    """Return whether a node is a Concat that needs no empty part, because it has other inputs."""
    return reader.op_type == "Concat" and not reader.domain and any(v not in empty for v in reader.inputs)


def _concat_without(reader: ir.Node, part: ir.Value) -> None:
    """Remove an empty part from the inputs of a Concat: an empty tensor prevents DirectML from fusing it."""
    rest = [v for v in reader.inputs if v is not part]
    for index, value in enumerate(rest):
        reader.replace_input_with(index, value)
    reader.resize_inputs(len(rest))


QUIRK = Quirk(
    id="split-empty-output",
    code="DP608",
    title="Split with an empty output",
    ops=("Split",),
    outcome="create fails",
    matches=_matches,
    rewrite=_rewrite,
)
