"""What a record says of a bisection: the nodes that were found, and the error along the model."""

from __future__ import annotations

from typing import Literal

import msgspec


class Bisected(msgspec.Struct, omit_defaults=True):
    """A bisection, as far as views show it.

    Attributes:
        reference, candidate: paths of the two models; equal where a device was bisected.
        kind: whether numbers part, or the candidate does not run.
        nodes, op_types: the nodes that were found, and their operators.
        values: names of values that were compared, in the order of the candidate's nodes.
        places: of the node that makes each, in topological order, from 0.
        errors: max|d| / max|reference| of each; ``None`` where elements are not finite.
        total_nodes: nodes of the candidate's main graph.
        bound: of the errors.
        hidden: the fault does not show while values between the nodes are outputs.
        settings: what the candidate did under other session settings: name, outcome, text.
        files: what was written to show the fault.
        runs: sessions opened.
    """

    reference: str
    candidate: str
    kind: Literal["values", "failure"] = "values"
    nodes: list[str] = []
    op_types: list[str] = []
    values: list[str] = []
    places: list[int] = []
    errors: list[float | None] = []
    total_nodes: int = 0
    bound: float = 0.0
    hidden: bool = False
    settings: list[tuple[str, str, str]] = []
    files: list[str] = []
    runs: int = 0

    def __post_init__(self) -> None:
        if not len(self.values) == len(self.places) == len(self.errors):
            raise ValueError("a value of a bisection has a place and an error")
        if any(not 0 <= place < self.total_nodes for place in self.places):
            raise ValueError("a value of a bisection is made by one of the nodes")
