"""Bisections in records: the nodes where two models first differ, and the error along the model."""

from __future__ import annotations

from typing import Literal

import msgspec


class Bisected(msgspec.Struct, omit_defaults=True):
    """The result of a bisection, as far as views show it.

    Attributes:
        reference, candidate: paths of the two models; equal if a device was bisected.
        kind: ``values``: numbers differ; ``failure``: the candidate does not run.
        nodes, op_types: names and operators of the nodes at which the models first differ; empty if they agree.
        values: names of the compared values, in the order of the candidate's nodes.
        places: for each value, the place of the node that makes it, in topological order, from 0.
        errors: for each value, max|d| / max|reference|; ``None`` if elements are not finite.
        total_nodes: number of nodes of the candidate.
        bound: the error that the tolerance allows for each value.
        hidden: the fault does not show while values between the nodes are outputs.
        settings: results under other session settings: name, outcome, text.
        files: the files that show the fault.
        runs: number of sessions that were opened.
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
            raise ValueError("a value of a bisection is the output of one of the nodes")
