"""The rules of the proof as one number for each candidate, for searches for models that will pass the proof."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.metrics.error import output_error
from dmlprep.metrics.groups import output_groups
from dmlprep.metrics.precision_traits import quantizes
from dmlprep.metrics.tolerances import TOLERANCES, choose_tolerance
from dmlprep.metrics.user_metric import UserMetric
from dmlprep.portable.arrays import Array
from dmlprep.portable.comparison import OutputGroup
from dmlprep.portable.measure import Tolerance

Side = Mapping[str, Array]

_BOUND = TOLERANCES["fp16-emulation"].max_rel

_CARRIED = 4.0
"""The weight of a state's error, because states carry errors from step to step. Over 360 steps of a speech detector,
the largest error was 8 times that of the worse of two feeds, and the typical error was twice as large."""


@dataclass(frozen=True)
class ProofRules:
    """The user's settings of the proof.

    Attributes:
        measures: the kinds of outputs that the user sets (see ``groups.output_groups``).
        tolerance: name of the tolerance, perhaps with bounds (``find_tolerance``), or ``auto``.
        metric: the user's own metric; ``None`` for none.
    """

    measures: Mapping[str, str] = field(default_factory=dict)
    tolerance: str = "auto"
    metric: UserMetric | None = None

    def judge(self, model: Model, enough: float, *, few_bits: bool = False) -> SearchJudge:
        """Return a judge for candidates that a search makes from ``model``: FP16 emulations.

        Args:
            enough: the largest error of an output that the search accepts; the proof's bound, if that is smaller.
            few_bits: the candidates have weights of few bits, and are not FP16 emulations.

        Raises:
            UsageError: as ``find_tolerance``.
        """
        quantized, device = quantizes(model), "fp16-emulation"
        bounds = choose_tolerance(self.tolerance, fp16=True, quantized=quantized, device=device, few_bits=few_bits)
        groups, states = output_groups(model, self.measures), frozenset(carried_states(model))
        limit = max(_BOUND, bounds.max_rel) if few_bits else _BOUND
        return SearchJudge(groups, bounds, min(enough, bounds.max_rel), self.metric, states, limit)

    def __str__(self) -> str:
        metric = f" {self.metric.name} {self.metric.bound}" if self.metric is not None else ""
        return f"{sorted(self.measures.items())} {self.tolerance}{metric}"


@dataclass(frozen=True)
class SearchJudge:
    """Judges each candidate of a search by one number, its error, in the way the proof will judge.

    Attributes:
        groups: the groups in which outputs are compared.
        bounds: the proof's bounds.
        enough: the largest accepted error. Usually it is below the proof's bound, because errors on other feeds and on
            a device differ.
        metric: the user's own metric; ``None`` for none.
        states: outputs that a model reads as inputs in its next time step. Their errors count more, because they return
            in later steps.
        limit: the error that stands for a user's metric exactly at its bound.
        faint: maps of probabilities that detect nothing on any feed; they are not measured on the scale of 0 to 1.
    """

    groups: list[OutputGroup]
    bounds: Tolerance
    enough: float
    metric: UserMetric | None
    states: frozenset[str] = frozenset()
    limit: float = _BOUND
    faint: frozenset[str] = frozenset()

    def error(self, group: OutputGroup, want: Side, got: Side) -> float:
        """The error of one group of outputs on one feed, as ``output_error`` computes it."""
        return output_error(
            [group], want, got, enough=self.enough, steep=self.bounds, faint=self.faint.isdisjoint(group.names)
        )

    def counted(self, group: OutputGroup, error: float) -> float:
        """Return a group's error times its weight: 4 if the group has a state, otherwise 1."""
        return error * _CARRIED if self.states.intersection(group.names) else error

    def decided(self, error: float, want: Side, got: Side) -> float:
        """Return the error of a candidate on one feed; it passes if this is at most ``enough``.

        Without a user's metric, this is ``error``, the largest error of the groups. With one, the metric decides: its
        number is scaled so that its bound is ``limit``. Without a bound, or with a bound of 0, a candidate that the
        metric accepts passes. A rejected candidate gets at least ``2 * limit``.

        Raises:
            InputError: the metric fails.
        """
        if self.metric is None:
            return error
        value, passed = self.metric.judge(want, got)
        if not passed:
            return max(error, 2 * self.limit)
        if not self.metric.bound:
            return min(error, self.enough)
        return self.limit * value / self.metric.bound if value > 0 else 0.0


_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16})

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")

_MARKS = frozenset(
    {"in", "out", "input", "output", "n", "new", "next", "prev", "previous", "last", "initial", "final", "updated"}
)
"""Words in names that distinguish a state before a time step from the state after it."""

_ENDS = ("out", "new", "in", "n", "i", "o")
"""Endings of names that mean the same without a separator: h and hn, r1i and r1o."""


def carried_states(model: Model) -> dict[str, str]:
    """Return output -> input for the states of a streaming model: outputs that it reads as inputs in the next step.

    States are recognized by their names, which differ only in words that mean before or after (hn and h, stateN and
    state), by equal floating-point types and by compatible shapes. A model with a single input or output has none.
    """
    inputs, outputs = model.ir.graph.inputs, model.ir.graph.outputs
    if len(inputs) < 2 or len(outputs) < 2:
        return {}
    stems = {name: v for v in inputs for name in _stems(v.name or "")}
    states: dict[str, str] = {}
    for output in outputs:
        for stem in _stems(output.name or ""):
            before = stems.get(stem)
            if before is not None and before.dtype in _FLOATS and _alike(before, output):
                states[output.name or ""] = before.name or ""
    return states


def _stems(name: str) -> list[str]:
    """Return the forms of a name without words and endings that mean before or after; empty if nothing remains."""
    words = [word.lower() for word in _WORDS.findall(name)]
    plain = "".join(word for word in words if word not in _MARKS)
    cut = next((plain.removesuffix(end) for end in _ENDS if plain.endswith(end) and plain != end), plain)
    return [stem for stem in dict.fromkeys((plain, cut)) if stem]


def _alike(one: ir.Value, other: ir.Value) -> bool:
    """Return whether two values have equal types and ranks and compatible sizes; unknown shapes are compatible."""
    if one.shape is None or other.shape is None:
        return one.dtype == other.dtype
    pairs = zip(one.shape.dims, other.shape.dims, strict=False)
    fits = all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)
    return one.dtype == other.dtype and 0 < len(one.shape) == len(other.shape) and fits
