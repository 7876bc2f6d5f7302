"""What a run record says of FP16: bytes, casts, nodes in FP32 and why, the worst values, the error in each mode."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dmlprep.record import OutputMetrics, RunRecord, StepRecord, Verdict

__all__ = ["FP16_MAX", "HalfStep", "Kept", "WorstValue", "half_steps", "modes", "worst_output"]

FP16_MAX = 65504.0
"""Largest finite FP16 value (IEEE 754 binary16)."""


@dataclass(frozen=True)
class Kept:
    """Nodes that stay in FP32 for one rule."""

    rule: str
    nodes: tuple[tuple[str, str], ...]
    """Name of each node and why, with its numbers."""


@dataclass(frozen=True)
class WorstValue:
    """A value of the range profile: its largest magnitude in FP32, and the share of it below FP16's normal range."""

    value: str
    peak: float
    small: float

    @property
    def overflows(self) -> bool:
        """Whether FP16 cannot hold it."""
        return self.peak > FP16_MAX


@dataclass(frozen=True)
class HalfStep:
    """What one FP16 step did.

    Attributes:
        casts: Cast nodes between floating types that are left.
        kept: by rule, the rule that keeps most nodes first; an island search is a rule of its own.
        worst: the range profile's worst values, empty where no profile ran.
        trials: nodes kept and error of each run of the emulation, where a search ran.
        blocks: what the search tried in FP16, each block with the error that it causes there, the worst first.
        seconds: that the search took.
        recipe_lines: TOML that gives the same result without a search.
    """

    step: str
    engine: str
    bytes_before: int
    bytes_after: int
    casts: int
    kept: tuple[Kept, ...]
    worst: tuple[WorstValue, ...]
    trials: tuple[tuple[int, float], ...]
    blocks: tuple[tuple[str, float], ...]
    seconds: float
    recipe_lines: str

    @property
    def kept_count(self) -> int:
        """How many nodes stay in FP32."""
        return sum(len(k.nodes) for k in self.kept)


def half_steps(record: RunRecord) -> list[HalfStep]:
    """The FP16 steps of a run."""
    return [_read(step) for step in record.steps if "casts" in step.facts]


def modes(record: RunRecord) -> list[Verdict]:
    """The verdicts that say how far the result is off, mode by mode; none where no step brought FP16 in."""
    return record.verdicts if half_steps(record) else []


def worst_output(verdict: Verdict) -> OutputMetrics | None:
    """The output that is furthest off."""
    return max(verdict.outputs, key=lambda o: o.max_rel, default=None)


def _read(step: StepRecord) -> HalfStep:
    facts = step.facts
    islands: Mapping[str, str] = facts.get("islands", {})
    return HalfStep(
        step=step.step,
        engine=str(facts.get("engine", "own")),
        bytes_before=step.bytes_before,
        bytes_after=step.bytes_after,
        casts=int(facts["casts"]),
        kept=tuple(_by_rule(facts.get("kept_fp32", {}), islands)),
        worst=tuple(_worst(facts.get("worst_values", []))),
        trials=tuple((int(t["kept"]), _number(t["error"])) for t in facts.get("trials", [])),
        blocks=tuple(
            sorted(((str(b["block"]), _number(b["error"])) for b in facts.get("blocks", [])), key=lambda b: -b[1])
        ),
        seconds=float(facts.get("search_seconds", 0.0)),
        recipe_lines=str(facts.get("island_recipe", "")) if islands else "",
    )


def _by_rule(kept: Mapping[str, str], islands: Mapping[str, str]) -> Iterator[Kept]:
    rules: dict[str, list[tuple[str, str]]] = {}
    for node, said in kept.items():
        rule, _, why = said.partition(": ")
        if node in islands:
            rule, why = "island search", islands[node]
        rules.setdefault(rule, []).append((node, why))
    for rule, nodes in sorted(rules.items(), key=lambda item: -len(item[1])):
        yield Kept(rule, tuple(nodes))


def _worst(rows: list[Mapping[str, Any]]) -> Iterator[WorstValue]:
    for row in rows:
        yield WorstValue(str(row["value"]), _number(row["peak"]), _number(row["small"]))


def _number(value: float | None) -> float:
    """JSON has no infinity: a record that was read back holds the largest number for it, an older one null."""
    return float("inf") if value is None or value >= sys.float_info.max else float(value)
