"""Kinds of operators, and of nodes, that several packages need."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import constant_of

MOVES = frozenset(
    """
    Identity Reshape Transpose Slice Squeeze Unsqueeze Flatten Expand Tile Gather GatherElements
    GatherND Concat Split DepthToSpace SpaceToDepth ReverseSequence Compress Trilu Dropout
    """.split()  # noqa: SIM905 - a list of a hundred names reads better as words
)
"""Operators that move values and do not change them."""

CONTROL = frozenset(
    """
    If Loop Scan SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap
    SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement
    """.split()  # noqa: SIM905 - a list of a hundred names reads better as words
)
"""Control flow, and operators that create or read sequences and optionals."""


def is_stored_weight(node: ir.Node, ir_version: int) -> bool:
    """Return True if a node dequantizes a constant weight for convolutions whose data is not quantized.

    The node must be com.microsoft's DequantizeLinear, which accepts scales of FP16 at every opset. The step
    ``weights`` writes such nodes.
    """
    if node.op_type != "DequantizeLinear" or node.domain != "com.microsoft":
        return False
    if any(value is not None and constant_of(value, ir_version) is None for value in node.inputs):
        return False
    uses = node.outputs[0].uses()
    return bool(uses) and not node.outputs[0].is_graph_output() and all(_is_weight(*use) for use in uses)


def _is_weight(user: ir.Node, index: int) -> bool:
    if user.op_type not in ("Conv", "ConvTranspose") or user.domain or index != 1:
        return False
    maker = user.inputs[0].producer() if user.inputs[0] is not None else None
    return maker is None or maker.op_type != "DequantizeLinear"
