"""The place in the user's program that a node was exported from."""

from __future__ import annotations

import msgspec


class Source(msgspec.Struct, frozen=True):
    """The module and the source line of a node; the text form is ``layers.0.mlp.act  model.py:16``.

    Attributes:
        module: path of the module, as ``named_modules()`` of PyTorch has it; empty if unknown.
        file: name of the source file without its folders; empty if unknown.
        line: line in ``file``, from 1; 0 if unknown.
    """

    module: str = ""
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """``model.py:16``; empty if unknown."""
        return f"{self.file}:{self.line}" if self.file else ""

    def beside(self, node: str) -> str:
        """Return the text form to show after a node's name, without a module that the name already contains."""
        return self.place if "/" in node and self.module in node.replace("/", ".") else str(self)

    def __str__(self) -> str:
        return "  ".join(filter(None, (self.module, self.place)))
