"""The rules of the proof, for a search for models that pass it."""

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
"""The weight of a state's error. Over 360 steps of a speech detector, the largest error was 8 times that of the worse
of two feeds. Carried from step to step, the typical error was twice as large."""


@dataclass(frozen=True)
class ProofRules:
    """The rules of the proof, with the user's settings.

    Attributes:
        measures: the user's own kinds of outputs, see ``groups.output_groups``.
        tolerance: name of the tolerance, with bounds (``find_tolerance``), or ``auto``.
    """

    measures: Mapping[str, str] = field(default_factory=dict)
    tolerance: str = "auto"
    metric: UserMetric | None = None

    def judge(self, model: Model, enough: float, *, few_bits: bool = False) -> SearchJudge:
        """Return the judge of FP16 emulations of ``model``.

        Args:
            enough: largest error of an output that the search accepts, unless the proof's bound is smaller.
            few_bits: judge ``model`` with weights of few bits instead.
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
    """Judges candidates by one number each, as the proof will.

    Attributes:
        bounds: the proof's bounds for the FP16 emulation.
        enough: the largest accepted error. It is below the proof's bound, because the errors on other feeds and on a
            device differ.
        states: outputs that the next step reads. Their errors return in later steps, and each step is another feed.
        limit: the error for a user's metric at its bound; ``enough`` is not larger.
        faint: maps that show nothing on any feed. Only their own scale proves them.
    """

    groups: list[OutputGroup]
    bounds: Tolerance
    enough: float
    metric: UserMetric | None
    states: frozenset[str] = frozenset()
    limit: float = _BOUND
    faint: frozenset[str] = frozenset()

    def error(self, group: OutputGroup, want: Side, got: Side) -> float:
        """The error of one group of outputs, by ``output_error``."""
        return output_error(
            [group], want, got, enough=self.enough, steep=self.bounds, faint=self.faint.isdisjoint(group.names)
        )

    def counted(self, group: OutputGroup, error: float) -> float:
        """The error of a group of outputs with its weight among the other groups."""
        return error * _CARRIED if self.states.intersection(group.names) else error

    def decided(self, error: float, want: Side, got: Side) -> float:
        """``error``, the largest that counts, or the number from the user's metric: at most ``enough`` passes.

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


_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16})

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")

_MARKS = frozenset(
    {"in", "out", "input", "output", "n", "new", "next", "prev", "previous", "last", "initial", "final", "updated"}
)
"""Words that distinguish a state before a step from one after it."""

_ENDS = ("out", "new", "in", "n", "i", "o")
"""Endings without a separator that mean the same: h and hn, r1i and r1o."""


def carried_states(model: Model) -> dict[str, str]:
    """Return each output that the next step reads, with the input that it becomes: hn and h, stateN and state.

    The two have the same floating-point type, compatible shapes, and the same name except for words that mean before or
    after. A model with a state also has a result and another input: a model of one output, or of one input, has no
    states.
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
    """A name without the words that distinguish before from after; empty if no other words remain."""
    words = [word.lower() for word in _WORDS.findall(name)]
    plain = "".join(word for word in words if word not in _MARKS)
    cut = next((plain.removesuffix(end) for end in _ENDS if plain.endswith(end) and plain != end), plain)
    return [stem for stem in dict.fromkeys((plain, cut)) if stem]


def _alike(one: ir.Value, other: ir.Value) -> bool:
    """Return whether one value can replace the other as an input, as far as types and shapes are known."""
    if one.shape is None or other.shape is None:
        return one.dtype == other.dtype
    pairs = zip(one.shape.dims, other.shape.dims, strict=False)
    fits = all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)
    return one.dtype == other.dtype and 0 < len(one.shape) == len(other.shape) and fits
