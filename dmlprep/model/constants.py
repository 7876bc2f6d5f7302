"""The tensor that a value holds, of models that nobody has checked yet."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["held_tensor"]


def held_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node; ``None`` where there is none, or the node has a wrong form.

    onnx-ir's own look-up raises where a Constant has two outputs, or no attribute that it knows.
    """
    if value is None:
        return None
    try:
        return ir.convenience.get_const_tensor(value)
    except (TypeError, ValueError):
        return None
