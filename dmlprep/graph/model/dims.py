"""Sizes of a value's dimensions, and shapes that keep their denotations when they are rewritten."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

Dim = int | str | None
"""Size of one dimension: a number, a name (dim_param), or unknown."""


def copy_shape(shape: ir.Shape) -> ir.Shape:
    """Return a copy of a shape that may be changed, denotations included (``ir.Shape(shape)`` drops them)."""
    return with_dims(shape, tuple(shape))


def with_dims(shape: ir.Shape | None, dims: Sequence[Dim | ir.SymbolicDim]) -> ir.Shape:
    """Return a new shape with the sizes ``dims``, and with the denotations of ``shape`` if the rank is the same."""
    keep = shape is not None and len(shape) == len(dims)
    names = [shape.get_denotation(i) for i in range(len(shape))] if keep and shape is not None else None
    return ir.Shape(list(dims), names)
