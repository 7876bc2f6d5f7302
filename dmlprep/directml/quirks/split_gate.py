"""A part of a Split times the sigmoid of another part: DirectML treats both as one value."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk, Value
from dmlprep.directml.quirks.patterns import without_identities


def _gated(node: NodeFacts) -> tuple[int, Value, NodeFacts] | None:
    """The input of a Mul that is a part of a Split, if the other input is the Sigmoid of another part.

    The result is the position of the input, the part, and the Split. It is ``None`` without such an input, or if the
    Sigmoid has another reader or is a graph output.
    """
    for index in (0, 1):
        part, gate = (without_identities(node.input(i)) for i in (index, 1 - index))
        sigmoid = gate.producer if gate is not None else None
        if part is None or gate is None or sigmoid is None or sigmoid.key != "Sigmoid":
            continue
        if len(gate.consumers) != 1 or gate.graph_output:
            continue  # the provider fuses the product only with a Sigmoid that has no other reader
        other, split = without_identities(sigmoid.input(0)), part.producer
        if other is None or other is part or split is None or split.key != "Split":
            continue
        if other.producer is split and split.graph == node.graph:
            return index, part, split
    return None


def _matches(node: NodeFacts) -> str:
    gate = _gated(node)
    return f"{gate[1].name} times the sigmoid of another part of {gate[2].label}" if gate is not None else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write a Slice for the part that is multiplied: DirectML confuses only two parts of one Split."""
    gate = _gated(facts)
    if gate is None or facts.opset < 10:
        return "the rewrite needs opset 10, where starts and ends are inputs of Slice"
    index, part, split = gate
    before = split.outputs[: split.outputs.index(part)]
    rank, axis = part.rank, int(split.attribute("axis", 0))
    sizes = [v.shape[axis] if v is not None and v.shape else None for v in (*before, part)]
    known = [size for size in sizes if isinstance(size, int)]
    if rank is None or len(known) != len(sizes):
        return "the sizes of its parts are unknown"
    data, start = edit.at(split.ir).input(), sum(known[:-1])
    like = next((v for v in (split.ir.outputs[len(before)], data, edit.output) if v.type is not None), None)
    parts = {axis % rank: (start, start + known[-1])}
    edit.set_input(index, edit.slice(data, parts, like=like, shape=part.shape or ()))
    return ""


QUIRK = Quirk(
    id="split-gate",
    code="DP638",
    title="a part of a Split gated by another part",
    ops=("Mul",),
    outcome="wrong numbers",
    sources=(
        "measured on onnxruntime-directml 1.19.2 to 1.24.4: a conformer in FP32 is 1.05 off; the product is "
        "b * sigmoid(b) instead of a * sigmoid(b)",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
