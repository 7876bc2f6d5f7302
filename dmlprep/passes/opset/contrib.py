"""Write operators of com.microsoft that DirectML has a kernel for, in the place of younger ai.onnx operators."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.passes.opset.build import Builder

__all__ = ["as_contrib"]


def as_contrib(b: Builder) -> list[ir.Value | None] | None:
    """The node as a com.microsoft operator, ``None`` where its attributes do not allow it."""
    return None
