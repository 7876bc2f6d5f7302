"""Why a node cannot be brought to the target's opset."""

from __future__ import annotations


class CannotLower(Exception):
    """One node cannot be rewritten; the pass turns this into a refusal that names it.

    Args:
        reason: why, one clause.
        in_function: whether inlining the model-local function around the node may help: its
            types are not known.
    """

    def __init__(self, reason: str, *, in_function: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.in_function = in_function


class InlineFirst(Exception):
    """A node of a model-local function can only be rewritten where the function's calls give it types.

    Args:
        functions: domain, name and overload of each such function.
    """

    def __init__(self, functions: set[tuple[str, str, str]]) -> None:
        super().__init__(", ".join(":".join(f) for f in sorted(functions)))
        self.functions = functions
