"""What the proof decides by, for a search that looks for what passes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dmlprep.graph.model import Model
from dmlprep.metrics.error import output_error
from dmlprep.metrics.groups import output_groups
from dmlprep.metrics.precision_traits import quantizes
from dmlprep.metrics.states import carried_states
from dmlprep.metrics.tolerances import TOLERANCES, choose_tolerance
from dmlprep.metrics.user_metric import UserMetric
from dmlprep.portable.arrays import Array
from dmlprep.portable.comparison import OutputGroup
from dmlprep.portable.measure import Tolerance

Side = Mapping[str, Array]

_BOUND = TOLERANCES["fp16-emulation"].max_rel

_CARRIED = 4.0
"""How many times the error of a state counts. Over 360 steps of a speech detector the largest one was 8 times that of
the worse of two feeds, and carried on from step to step it was twice as large in the middle."""


@dataclass(frozen=True)
class ProofRules:
    """How the proof judges, as the user set it.

    Attributes:
        measures: kinds of outputs that the user knows better, see ``groups.output_groups``.
        tolerance: name of the tolerance, with bounds (``find_tolerance``), or ``auto``.
        metric: the user's own measure, which decides where it is given.
    """

    measures: Mapping[str, str] = field(default_factory=dict)
    tolerance: str = "auto"
    metric: UserMetric | None = None

    def judge(self, model: Model, enough: float, *, few_bits: bool = False) -> SearchJudge:
        """Of FP16 emulations of ``model``.

        Args:
            enough: largest error of an output that the search accepts, where the proof allows no less.
            few_bits: of ``model`` with weights of few bits instead.
        """
        bounds = choose_tolerance(
            self.tolerance, fp16=True, quantized=quantizes(model), device="fp16-emulation", few_bits=few_bits
        )
        groups, states = output_groups(model, self.measures), frozenset(carried_states(model))
        limit = max(_BOUND, bounds.max_rel) if few_bits else _BOUND
        return SearchJudge(groups, bounds, min(enough, bounds.max_rel), self.metric, states, limit)

    def __str__(self) -> str:
        metric = f" {self.metric.name} {self.metric.bound}" if self.metric is not None else ""
        return f"{sorted(self.measures.items())} {self.tolerance}{metric}"


@dataclass(frozen=True)
class SearchJudge:
    """Judges candidates by one number each, as the proof will.

    Attributes:
        groups: outputs as they are compared.
        bounds: the proof's, of the FP16 emulation.
        enough: the largest error that is accepted. It is below what the proof allows: other feeds, and a device, err
            otherwise.
        states: outputs that the next step reads. Their errors come back, and each step is another feed.
        limit: the error that a user's metric at its bound counts as; ``enough`` is no more.
    """

    groups: list[OutputGroup]
    bounds: Tolerance
    enough: float
    metric: UserMetric | None
    states: frozenset[str] = frozenset()
    limit: float = _BOUND

    def error(self, group: OutputGroup, want: Side, got: Side) -> float:
        """The error of one group of outputs, by ``output_error``."""
        return output_error([group], want, got, enough=self.enough, steep=self.bounds)

    def counted(self, group: OutputGroup, error: float) -> float:
        """What the error of a group of outputs counts beside those of the others."""
        return error * _CARRIED if self.states.intersection(group.names) else error

    def decided(self, error: float, want: Side, got: Side) -> float:
        """``error``, the largest that counts, or what the user's metric makes of it: at most ``enough`` passes.

        Raises:
            InputError: the metric fails.
        """
        if self.metric is None:
            return error
        value, passed = self.metric.judge(want, got)
        if not passed:
            return max(error, 2 * self.limit)
        if self.metric.bound is None:
            return min(error, self.enough)
        return self.limit * value / self.metric.bound if value > 0 else 0.0
