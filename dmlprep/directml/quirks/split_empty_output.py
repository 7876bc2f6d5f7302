"""Split with a part of size 0 that is read."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts, Value


def _matches(node: NodeFacts) -> str:
    empty = [v.name for v in node.outputs if v is not None and v.size == 0 and v.consumers]
    return f"output {', '.join(empty)} is empty, and read" if empty else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Drop the parts of size 0: a Concat gets fewer inputs, other readers an empty constant."""
    axis = int(facts.attribute("axis", 0))
    parts: list[tuple[int, int]] = []
    empty: list[tuple[int, Value]] = []
    for index, value in enumerate(facts.outputs):
        if value is None or value.shape is None or not value.static:
            return "the sizes of its parts are not known"
        size = value.shape[axis]
        assert isinstance(size, int)
        if size == 0:
            empty.append((index, value))
        else:
            parts.append((index, size))
    if not parts:
        return "every part is empty"
    data = edit.node.inputs[0]
    if data is None:
        return "it has no data"
    for index, value in empty:
        out = edit.node.outputs[index]
        for reader in {use.node for use in out.uses()}:
            _concat_without(reader, out)
        if not out.uses() and not out.is_graph_output():
            continue
        dtype = ir.DataType[value.type.upper()]
        dims = value.sizes
        edit.replace_output(edit.constant(np.zeros(dims, dtype.numpy()), "empty"), index)
    if len(parts) == 1:
        return edit.become(edit.before("Identity", [data], like=edit.node.outputs[parts[0][0]]), parts[0][0])
    outputs = [edit.new_value("part") for _ in parts]
    sizes = [size for _, size in parts]
    inputs: list[ir.Value | None] = [data]
    attributes: dict[str, int | list[int]] = {"axis": axis}
    if facts.opset >= 13:
        inputs.append(edit.integers(sizes, "split"))
    else:
        attributes["split"] = sizes
    edit.graph.insert_before(edit.node, edit.new_node("Split", inputs, outputs, "split", attributes))
    for output, (index, _) in zip(outputs, parts, strict=True):
        edit.replace_output(output, index)
    edit.remove()
    return ""


def _concat_without(reader: ir.Node, part: ir.Value) -> None:
    """Take an empty part out of a Concat that has others: an empty tensor keeps DirectML from fusing it."""
    rest = [v for v in reader.inputs if v is not part]
    if reader.op_type != "Concat" or reader.domain or not rest:
        return
    for index, value in enumerate(rest):
        reader.replace_input_with(index, value)
    reader.resize_inputs(len(rest))


QUIRK = Quirk(
    id="split-empty-output",
    code="DP608",
    title="Split with an empty output",
    ops=("Split",),
    outcome="create fails",
    sources=(MEASURED,),
    matches=_matches,
    rewrite=_rewrite,
)
