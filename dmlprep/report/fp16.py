"""What a run record says of FP16: bytes, casts, nodes in FP32 and why, the worst values, the error in each mode."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dmlprep.record import OutputMetrics, RunRecord, StepRecord, Verdict
from dmlprep.record.steps import Kept, Profile, StepFacts

FP16_MAX = 65504.0
"""Largest finite FP16 value (IEEE 754 binary16)."""


@dataclass(frozen=True)
class KeptNodes:
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
        tolerance: error that the search accepts; 0 where there was none.
        profile: the range profile along the model, where one ran.
    """

    step: str
    engine: str
    bytes_before: int
    bytes_after: int
    casts: int
    kept: tuple[KeptNodes, ...]
    worst: tuple[WorstValue, ...]
    trials: tuple[tuple[int, float], ...]
    blocks: tuple[tuple[str, float], ...]
    seconds: float
    recipe_lines: str
    tolerance: float
    profile: Profile | None

    @property
    def kept_count(self) -> int:
        """How many nodes stay in FP32."""
        return sum(len(k.nodes) for k in self.kept)


def half_steps(record: RunRecord) -> list[HalfStep]:
    """The FP16 steps of a run."""
    return [_read(step, step.facts, step.facts.casts) for step in record.steps if step.facts.casts is not None]


def modes(record: RunRecord) -> list[Verdict]:
    """The verdicts that say how far the result is off, mode by mode; none where no step brought FP16 in."""
    return record.verdicts if half_steps(record) else []


def worst_output(verdict: Verdict) -> OutputMetrics | None:
    """The output that is furthest off."""
    return max(verdict.outputs, key=lambda o: o.max_rel, default=None)


def _read(step: StepRecord, facts: StepFacts, casts: int) -> HalfStep:
    return HalfStep(
        step=step.title,
        engine=facts.engine or "own",
        bytes_before=step.bytes_before,
        bytes_after=step.bytes_after,
        casts=casts,
        kept=tuple(_by_rule(facts.kept_fp32, facts.islands)),
        worst=tuple(WorstValue(one.value, _number(one.peak), _number(one.small)) for one in facts.worst_values),
        trials=tuple((one.kept, _number(one.error)) for one in facts.trials),
        blocks=tuple(sorted(((one.block, _number(one.error)) for one in facts.blocks), key=lambda b: -b[1])),
        seconds=facts.search_seconds,
        recipe_lines=facts.island_recipe if facts.islands else "",
        tolerance=float(tolerance) if isinstance(tolerance := step.options.get("tolerance"), int | float) else 0.0,
        profile=facts.profile,
    )


def _by_rule(kept: Mapping[str, Kept], islands: Mapping[str, str]) -> Iterator[KeptNodes]:
    rules: dict[str, list[tuple[str, str]]] = {}
    for node, one in kept.items():
        found = Kept("island search", islands[node]) if node in islands else one
        rules.setdefault(found.rule, []).append((node, found.why))
    for rule, nodes in sorted(rules.items(), key=lambda item: -len(item[1])):
        yield KeptNodes(rule, tuple(nodes))


def _number(value: float | None) -> float:
    """JSON has no infinity: a record that was read back holds the largest number for it, an older one null."""
    return float("inf") if value is None or value >= sys.float_info.max else float(value)
