"""Integer outputs that are rounded numbers, not classes or indices: the levels of an image, the samples of a sound."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model import Model

_NARROW = frozenset({ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.UINT16, ir.DataType.INT16})
"""What images and sounds are stored in; indices and counts are wider."""

_HANDS_ON = frozenset(
    {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat", "Clip", "Min", "Max"}
)
_ARITHMETIC = _HANDS_ON | {"Add", "Sub", "Mul", "Div", "Round", "Floor", "Ceil", "Resize", "Where", "Relu", "Pad"}


def integer_images(model: Model) -> frozenset[str]:
    """Names of the integer outputs of 8 or 16 bits that are a Cast of computed floating numbers.

    A number that was an integer of the graph's own (ArgMax cast to float and back) is a class or an index all the same.
    """
    return frozenset(v.name or "" for v in model.ir.graph.outputs if v.dtype in _NARROW and _rounded(v))


def _rounded(value: ir.Value) -> bool:
    node = value.producer()
    while node is not None and node.op_type in _HANDS_ON and node.inputs and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    if node is None or node.op_type != "Cast" or node.inputs[0] is None:
        return False
    return not _was_integer(node.inputs[0])


_COMBINES = frozenset({"Add", "Sub", "Mul", "Div", "Min", "Max", "Where", "Concat"})
_MAKES_INTEGERS = frozenset(
    {"ArgMax", "ArgMin", "TopK", "NonZero", "NonMaxSuppression", "Shape", "Size", "Unique", "OneHot", "Bernoulli",
     "Multinomial", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not", "IsNaN",
     "IsInf", "Range", "MatMulInteger", "ConvInteger"}
)  # fmt: skip
"""Operators that give classes, indices and flags; types between inputs and outputs are not always written down."""


def _was_integer(value: ir.Value) -> bool:
    """Whether classes, indices or flags take part in the arithmetic that makes a value."""
    stack, seen = [value], set[ir.Value]()
    while stack:
        one = stack.pop()
        node = one.producer()
        if node is None or one in seen:
            continue
        seen.add(one)
        if node.op_type in _MAKES_INTEGERS:
            return True
        if node.op_type in _COMBINES:
            stack += [v for v in node.inputs if v is not None]
        elif (node.op_type == "Cast" or node.op_type in _ARITHMETIC) and node.inputs[0] is not None:
            stack.append(node.inputs[0])  # the others are sizes and places
    return False
