"""What the proof decides by, for a search that looks for what passes it."""

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
"""How many times the error of a state counts. Over 360 steps of a speech detector the largest one was 8 times that of
the worse of two feeds, and carried on from step to step it was twice as large in the middle."""


@dataclass(frozen=True)
class ProofRules:
    """How the proof judges, as the user set it.

    Attributes:
        measures: kinds of outputs that the user knows better, see ``groups.output_groups``.
        tolerance: name of the tolerance, with bounds (``find_tolerance``), or ``auto``.
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
        bounds: the proof's, of the FP16 emulation.
        enough: the largest error that is accepted. It is below what the proof allows: other feeds, and a device, err
            otherwise.
        states: outputs that the next step reads. Their errors come back, and each step is another feed.
        limit: the error that a user's metric at its bound counts as; ``enough`` is no more.
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


_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16})

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")

_MARKS = frozenset(
    {"in", "out", "input", "output", "n", "new", "next", "prev", "previous", "last", "initial", "final", "updated"}
)
"""Words that tell a state before a step from one after it."""

_ENDS = ("out", "new", "in", "n", "i", "o")
"""The same, written without a border: h and hn, r1i and r1o."""


def carried_states(model: Model) -> dict[str, str]:
    """Of each output that the next step reads, the input that it becomes: hn and h, stateN and state.

    The two have a floating type in common, shapes that fit, and a name but for what says before or after. A state goes
    beside a result, and beside what is new at each step: a model of one output, or of one input, has none.
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
    """A name without the words that tell before from after; empty where nothing else is left."""
    words = [word.lower() for word in _WORDS.findall(name)]
    plain = "".join(word for word in words if word not in _MARKS)
    cut = next((plain.removesuffix(end) for end in _ENDS if plain.endswith(end) and plain != end), plain)
    return [stem for stem in dict.fromkeys((plain, cut)) if stem]


def _alike(one: ir.Value, other: ir.Value) -> bool:
    """Whether one may be given where the other is read, as far as types and shapes are known."""
    if one.shape is None or other.shape is None:
        return one.dtype == other.dtype
    pairs = zip(one.shape.dims, other.shape.dims, strict=False)
    fits = all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)
    return one.dtype == other.dtype and 0 < len(one.shape) == len(other.shape) and fits
