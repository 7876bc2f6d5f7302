"""What a step of a run did, and what it noted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from dmlprep.record.findings import Finding

__all__ = ["Profile", "StepFacts", "StepRecord", "step_facts"]

_Number = float | None
"""JSON has no infinity: it is written as null."""


class Trial(msgspec.Struct):
    kept: int
    error: _Number


class Block(msgspec.Struct):
    block: str
    error: _Number


class Worst(msgspec.Struct):
    value: str
    peak: _Number
    small: _Number


class Profile(msgspec.Struct):
    """The range profile along the model.

    Attributes:
        nodes: place of each node that makes a floating value, in the order of the graph.
        peaks: largest magnitude of what it makes, over all feeds.
        left_out: values of smaller magnitude that are not here.
    """

    nodes: list[str]
    peaks: list[float | None]
    left_out: int = 0

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.peaks):
            raise ValueError("a range profile has a peak for each node")


class StepFacts(msgspec.Struct):
    """What a step to FP16 noted; ``casts`` is ``None`` for every other step."""

    casts: int | None = None
    engine: str = ""
    islands: dict[str, str] = {}
    kept_fp32: dict[str, str] = {}
    worst_values: list[Worst] = []
    trials: list[Trial] = []
    blocks: list[Block] = []
    search_seconds: float = 0.0
    island_recipe: str = ""
    profile: Profile | None = None


class StepRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one step did.

    Attributes:
        outcome: ``changed``, ``unchanged`` or ``undone`` (the guard took it back).
        seconds: wall time.
        nodes_before: nodes of all graphs, subgraphs and functions.
        bytes_before: bytes of all tensors held by the model.
    """

    step: str
    outcome: Literal["changed", "unchanged", "undone"]
    seconds: float
    nodes_before: int
    nodes_after: int
    bytes_before: int
    bytes_after: int
    options: dict[str, Any] = {}
    findings: list[Finding] = []
    facts: dict[str, Any] = {}


def step_facts(facts: Mapping[str, Any]) -> StepFacts:
    """What views show of a step's facts.

    Raises:
        msgspec.ValidationError: one is of another type.
    """
    return msgspec.convert(facts, StepFacts)
