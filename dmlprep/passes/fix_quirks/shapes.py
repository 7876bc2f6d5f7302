"""Rewrites of operators that move data: Reshape, Squeeze, Split, Pad, optionals."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.passes.fix_quirks.editing import Edit
from dmlprep.targets.facts import NodeFacts, Value
from dmlprep.targets.quirks.wrong import gated

__all__ = [
    "optional_without_input",
    "pad_negative",
    "reshape_allowzero",
    "split_empty_output",
    "split_gate",
    "squeeze_shared",
]


def reshape_allowzero(facts: NodeFacts, edit: Edit) -> str:
    """allowzero says what a 0 in the shape means; where there is none it says nothing."""
    shape, out = facts.input(1), facts.output()
    sizes = shape.integers() if shape is not None else None
    no_zero = sizes is not None and 0 not in sizes
    # A result without a size of 0 came of a shape without one: with allowzero a 0 stays 0.
    no_zero = no_zero or (out is not None and out.static and out.size != 0)
    if not no_zero:
        return "its shape may hold a 0"
    edit.drop("allowzero")
    return ""


def squeeze_shared(facts: NodeFacts, edit: Edit) -> str:
    """The axes get an initializer of their own."""
    axes = facts.input(1)
    array = axes.array() if axes is not None else None
    if array is None:
        return "its axes are not constant"
    edit.set_input(1, edit.constant(array, "axes"))
    return ""


def optional_without_input(facts: NodeFacts, edit: Edit) -> str:
    """Nothing is there: false."""
    edit.replace_output(edit.constant(np.array(False), "false"))
    edit.remove()
    return ""


def _concat_without(reader: ir.Node, part: ir.Value) -> None:
    """Take an empty part out of a Concat that has others: an empty tensor keeps DirectML from fusing it."""
    rest = [v for v in reader.inputs if v is not part]
    if reader.op_type != "Concat" or reader.domain not in ("", "ai.onnx") or not rest:
        return
    for index, value in enumerate(rest):
        reader.replace_input_with(index, value)
    reader.resize_inputs(len(rest))


def split_empty_output(facts: NodeFacts, edit: Edit) -> str:
    """Drop the parts of size 0; a Concat does without them, other readers get an empty constant."""
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
        dims = [d for d in value.shape or () if isinstance(d, int)]
        edit.replace_output(edit.constant(np.zeros(dims, dtype.numpy()), "empty"), index)
    if len(parts) == 1:
        edit.replace_output(edit.before("Identity", [data], like=edit.node.outputs[parts[0][0]]), parts[0][0])
        edit.remove()
        return ""
    outputs = [ir.Value(name=edit.name("part")) for _ in parts]
    sizes = [size for _, size in parts]
    inputs: list[ir.Value | None] = [data]
    attributes = [ir.AttrInt64("axis", axis)]
    if facts.opset >= 13:
        inputs.append(edit.integers(sizes, "split"))
    else:
        attributes.append(ir.AttrInt64s("split", sizes))
    edit.graph.insert_before(
        edit.node, ir.Node("", "Split", inputs, attributes, outputs=outputs, name=edit.name("split_node"))
    )
    for output, (index, _) in zip(outputs, parts, strict=True):
        edit.replace_output(output, index)
    edit.remove()
    return ""


def split_gate(facts: NodeFacts, edit: Edit) -> str:
    """The part that is multiplied comes by Slice: DirectML mistakes only two parts of one Split for one value."""
    found = gated(facts)
    if found is None or facts.opset < 10:
        return "Slice takes no inputs before opset 10"
    index, part, split = found
    before = split.outputs[: split.outputs.index(part)]
    rank, axis = part.rank, int(split.attribute("axis", 0))
    sizes = [v.shape[axis] if v is not None and v.shape else None for v in (*before, part)]
    known = [size for size in sizes if isinstance(size, int)]
    if rank is None or len(known) != len(sizes):
        return "the sizes of its parts are not known"
    value = edit.node.inputs[index]
    while value is not None and (made := value.producer()) is not None and made.op_type == "Identity":
        value = made.inputs[0]
    data = made.inputs[0] if value is not None and made is not None else None
    assert data is not None
    start = sum(known[:-1])
    slots: list[ir.Value | None] = [
        data,
        edit.integers([start], "starts"),
        edit.integers([start + known[-1]], "ends"),
        edit.integers([axis % rank], "axes"),
    ]
    like = next((v for v in (value, data, edit.node.outputs[0]) if v is not None and v.type is not None), None)
    edit.set_input(index, edit.before("Slice", slots, like=like, shape=list(part.shape or ())))
    return ""


def pad_negative(facts: NodeFacts, edit: Edit) -> str:
    """Crop by Slice, then pad by what is left."""
    x, pads_value = facts.input(0), facts.input(1)
    pads = pads_value.integers() if pads_value is not None else None
    if x is None or pads is None or x.rank is None:
        return "its pads or its rank are not known"
    axes = list(range(x.rank))
    given = facts.input(3)
    if given is not None:
        listed = given.integers()
        if listed is None:
            return "its axes are not constant"
        axes = [a + x.rank if a < 0 else a for a in listed]
    half = len(axes)
    if len(pads) != 2 * half:
        return "its pads do not fit its axes"
    mode = facts.attribute("mode", "constant")
    starts, ends, cut = [], [], []
    for i, axis in enumerate(axes):
        low, high = pads[i], pads[i + half]
        if min(low, high) >= 0:
            continue
        if mode != "constant" and max(low, high) > 0:
            return f"mode {mode} crops and pads one axis"
        size = x.shape[axis] if x.shape is not None else None
        if isinstance(size, int) and size + min(low, 0) + min(high, 0) < 0:
            return f"axis {axis} is cropped by more than it has"
        starts.append(max(-low, 0))
        ends.append(high if high < 0 else np.iinfo(np.int64).max)
        cut.append(axis)
    data = edit.node.inputs[0]
    assert data is not None
    slots: list[ir.Value | None] = [
        data,
        edit.integers(starts, "starts"),
        edit.integers(ends, "ends"),
        edit.integers(cut, "axes"),
    ]
    cropped = edit.before("Slice", slots, like=data)
    rest = [max(p, 0) for p in pads]
    if any(rest):
        edit.set_input(0, cropped)
        edit.set_input(1, edit.integers(rest, "pads"))
    else:
        edit.replace_output(cropped)
        edit.remove()
    return ""
