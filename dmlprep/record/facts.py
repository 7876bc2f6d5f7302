"""The facts of a run and of its steps that views read, as types: a record from outside is held to them when it is read.

Facts are free: a step notes what it likes. What is not named here is shown by no view, and written back as it was.
Views get these types, not the facts, so that they cannot show one that nobody checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from dmlprep.record.bisected import Bisected
from dmlprep.record.buckets import BucketFacts
from dmlprep.record.memory import MemoryEstimate
from dmlprep.record.nodes import NodeTables
from dmlprep.record.origin import Origin
from dmlprep.record.speed import Bench

__all__ = ["PlacementFacts", "Profile", "StepFacts", "Which", "check_run_facts", "placement_facts", "step_facts"]

Which = Literal["placement_before", "placement_after", "placement"]
"""Before and after ``prepare``; of a model as it is."""

_Number = float | None
"""JSON has no infinity: it is written as null."""


class PlacementFacts(msgspec.Struct):
    """Where the nodes of a model go, in numbers.

    Attributes:
        flop_share: of the floating-point operations, on DirectML, 0 to 1; ``None`` where it is not known.
        crossing_bytes: copied between CPU and GPU in each run, as far as it is known.
    """

    nodes: int
    crossings: int
    dml_nodes: int = 0
    partitions: int = 0
    flop_share: float | None = None
    crossing_bytes: int = 0


class _Run(msgspec.Struct):
    placement_before: PlacementFacts | None = None
    placement_after: PlacementFacts | None = None
    placement: PlacementFacts | None = None
    files: list[str] = []
    bench: Bench | None = None
    nodes: NodeTables | None = None
    memory: MemoryEstimate | None = None
    origin: Origin | None = None
    bisection: Bisected | None = None
    bucket: BucketFacts | None = None


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


def check_run_facts(facts: Mapping[str, Any]) -> None:
    """Hold the facts of a run to their types.

    Raises:
        msgspec.ValidationError: one is of another type.
    """
    msgspec.convert(facts, _Run)


def placement_facts(facts: Mapping[str, Any], which: Which) -> PlacementFacts | None:
    """A placement of a run; ``None`` where it has none, or one of no node."""
    found = facts.get(which)
    return msgspec.convert(found, PlacementFacts) if found else None


def step_facts(facts: Mapping[str, Any]) -> StepFacts:
    """What views show of a step's facts.

    Raises:
        msgspec.ValidationError: one is of another type.
    """
    return msgspec.convert(facts, StepFacts)
