"""Read the FP16 steps of a run record, for the text and HTML views."""

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
    """The nodes that stay in FP32 because of one rule: for each, its name, and the reason with its numbers."""

    rule: str
    nodes: tuple[tuple[str, str], ...]


class WorstValue(NamedTuple):
    """A value of the range profile.

    ``peak``: its largest magnitude in FP32; ``small``: the share of its elements below FP16's normal range, 0 to 1.
    """

    value: str
    peak: float
    small: float

    @property
    def overflows(self) -> bool:
        """Return whether the value exceeds FP16's largest number."""
        return self.peak > FP16_MAX


@dataclass(frozen=True)
class HalfStep:
    """An FP16 step of a run, prepared for views.

    Attributes:
        record: the record of the step.
        kept_nodes: the nodes that stay in FP32, by rule; the rule with most nodes comes first. The island search counts
            as a rule.
        worst: the values of the range profile that fit FP16 worst.
        trials: for each trial of the search, the number of nodes kept in FP32, and the error.
        blocks: name and error of each block that the search tried in FP16, the worst first.
        tolerance: the error that a search accepts, as the step's options set it; 0 if they do not.
    """

    record: StepRecord
    kept_nodes: tuple[KeptNodes, ...]
    worst: tuple[WorstValue, ...]
    trials: tuple[tuple[int, float], ...]
    blocks: tuple[tuple[str, float], ...]
    tolerance: float

    @property
    def facts(self) -> StepFacts:
        """The facts in the step's record."""
        return self.record.facts

    @property
    def kept_count(self) -> int:
        """Number of nodes that stay in FP32."""
        return sum(len(k.nodes) for k in self.kept_nodes)


def half_steps(record: RunRecord) -> list[HalfStep]:
    """Return the FP16 steps of a run, in order; empty if there are none."""
    return [_read(step, step.facts) for step in record.steps if step.facts.casts is not None]


def modes(record: RunRecord) -> list[Verdict]:
    """Return the verdicts of a run with an FP16 step, which show the error on each device; otherwise an empty list."""
    return record.verdicts if half_steps(record) else []


def worst_output(verdict: Verdict) -> OutputMetrics | None:
    """Return the output with the largest error in a check; ``None`` if the check has no outputs."""
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
    """Return a number of a record, in which JSON cannot hold infinity.

    Records have the largest float for infinity, older records ``None``; both become infinity.
    """
    return float("inf") if value is None or value >= sys.float_info.max else float(value)
