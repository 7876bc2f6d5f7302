"""The FP16 steps of a run record, as text and HTML show them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dmlprep.record import OutputMetrics, RunRecord, StepRecord, Verdict
from dmlprep.record.steps import KeepReason, StepFacts

FP16_MAX = 65504.0
"""Largest finite FP16 value (IEEE 754 binary16)."""


class KeptNodes(NamedTuple):
    """Nodes that stay in FP32 for one rule: the name of each, and the reason with its numbers."""

    rule: str
    nodes: tuple[tuple[str, str], ...]


class WorstValue(NamedTuple):
    """A value of the range profile: its largest magnitude in FP32, and the share of it below FP16's normal range."""

    value: str
    peak: float
    small: float

    @property
    def overflows(self) -> bool:
        """True if FP16 cannot hold it."""
        return self.peak > FP16_MAX


@dataclass(frozen=True)
class HalfStep:
    """One FP16 step, with the facts of its record as views show them.

    Attributes:
        kept_nodes: by rule, the rule that keeps most nodes first; an island search is a rule of its own.
        trials: number of kept nodes and error of each run of the search.
        blocks: error of each block that the search tried in FP16, the worst first.
        tolerance: error that the search accepts; 0 without a search.
    """

    record: StepRecord
    kept_nodes: tuple[KeptNodes, ...]
    worst: tuple[WorstValue, ...]
    trials: tuple[tuple[int, float], ...]
    blocks: tuple[tuple[str, float], ...]
    tolerance: float

    @property
    def facts(self) -> StepFacts:
        """The facts of the step."""
        return self.record.facts

    @property
    def kept_count(self) -> int:
        """Number of nodes that stay in FP32."""
        return sum(len(k.nodes) for k in self.kept_nodes)


def half_steps(record: RunRecord) -> list[HalfStep]:
    """Return the FP16 steps of a run."""
    return [_read(step, step.facts) for step in record.steps if step.facts.casts is not None]


def modes(record: RunRecord) -> list[Verdict]:
    """Return the verdicts, which show the error in each mode; none without an FP16 step."""
    return record.verdicts if half_steps(record) else []


def worst_output(verdict: Verdict) -> OutputMetrics | None:
    """Return the output with the largest error."""
    return max(verdict.outputs, key=lambda o: o.max_rel, default=None)


def _read(step: StepRecord, facts: StepFacts) -> HalfStep:
    tolerance = step.options.get("tolerance")
    return HalfStep(
        record=step,
        kept_nodes=tuple(_by_rule(facts.kept_fp32, facts.islands)),
        worst=tuple(WorstValue(one.value, _number(one.peak), _number(one.small)) for one in facts.worst_values),
        trials=tuple((one.kept_nodes, _number(one.error)) for one in facts.trials),
        blocks=tuple(sorted(((one.block, _number(one.error)) for one in facts.blocks), key=lambda b: -b[1])),
        tolerance=float(tolerance) if isinstance(tolerance, int | float) else 0.0,
    )


def _by_rule(fp32_nodes: Mapping[str, KeepReason], islands: Mapping[str, str]) -> Iterator[KeptNodes]:
    rules: dict[str, list[tuple[str, str]]] = {}
    for node, one in fp32_nodes.items():
        reason = KeepReason("island search", islands[node]) if node in islands else one
        rules.setdefault(reason.rule, []).append((node, reason.why))
    for rule, nodes in sorted(rules.items(), key=lambda item: -len(item[1])):
        yield KeptNodes(rule, tuple(nodes))


def _number(value: float | None) -> float:
    """Return infinity for the largest number, as JSON writes it, and for null, as older records write it."""
    return float("inf") if value is None or value >= sys.float_info.max else float(value)
