"""How single operators step below one of their versions.

A step takes a node that stands at its operator's version ``since`` and either edits it in place, so that the version
before accepts it (returns ``None``), or writes other nodes and returns what takes the place of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from dmlprep.passes.opset.build import Builder

__all__ = ["Step", "Steps"]

Step = Callable[[Builder], Sequence[ir.Value | None] | None]
Steps = dict[tuple[str, int], Step]
"""(operator, since) -> how it steps below that version."""
