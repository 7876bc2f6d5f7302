"""The facts of a run and of its steps that views read, as types: a record from outside is held to them when it is read.

Facts are free: a step notes what it likes. What is not named here is shown by no view, and written back as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dmlprep.record.speed import Bench

__all__ = ["check_run_facts", "check_step_facts"]

_Number = float | None
"""JSON has no infinity: it is written as null."""


class _Placement(msgspec.Struct):
    nodes: int
    crossings: int
    dml_nodes: int = 0
    partitions: int = 0
    flop_share: float | None = None


class _Run(msgspec.Struct):
    placement_before: _Placement | None = None
    placement_after: _Placement | None = None
    files: list[str] = []
    bench: Bench | None = None


class _Trial(msgspec.Struct):
    kept: int
    error: _Number


class _Block(msgspec.Struct):
    block: str
    error: _Number


class _Worst(msgspec.Struct):
    value: str
    peak: _Number
    small: _Number


class _Step(msgspec.Struct):
    casts: int = 0
    engine: str = ""
    islands: dict[str, str] = {}
    kept_fp32: dict[str, str] = {}
    worst_values: list[_Worst] = []
    trials: list[_Trial] = []
    blocks: list[_Block] = []
    search_seconds: float = 0.0
    island_recipe: str = ""


def check_run_facts(facts: Mapping[str, Any]) -> None:
    """Hold the facts of a run to their types.

    Raises:
        msgspec.ValidationError: one is of another type.
    """
    msgspec.convert(facts, _Run)


def check_step_facts(facts: Mapping[str, Any]) -> None:
    """Hold the facts of a step to their types.

    Raises:
        msgspec.ValidationError: one is of another type.
    """
    msgspec.convert(facts, _Step)
