"""Compare the outputs of a model with those of its reference, group by group. The worst feed decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from .measure import Tolerance, measure, unwound
from .output_metrics import OutputMetrics
from .rows import match_rows, ranked_rows
from .shares import percent
from .steep import STEEP, steep_error

if TYPE_CHECKING:
    from .arrays import Array

_NEAR = 0.25
"""A share of the bound. A steep output whose largest error is below this share needs no further measure."""


@dataclass(frozen=True)
class OutputGroup:
    """Names of outputs that are compared together.

    Attributes:
        kind: ``elements``: compare element by element. The other kinds apply if that fails. ``rows``: match the rows as
            a set, with all outputs of the group side by side (boxes, scores and labels). ``ranked``: the same for rows
            that TopK chose, with or without a batch axis. ``map``, ``classes``, ``logits``: compare what readers derive
            from the output, such as masks or the winning class (``steep``).
        count: for ``ranked``, how many rows TopK chooses; ``None`` if the graph does not define it.
        integer_images: the outputs among ``names`` whose values are rounded numbers.
        turn: a full turn of an angle, in the output's unit; 0 for other outputs.
    """

    names: tuple[str, ...]
    kind: Literal["elements", "rows", "ranked", "map", "classes", "logits"] = "elements"
    count: int | None = None
    integer_images: tuple[str, ...] = ()
    turn: float = 0.0


def compare_outputs(
    groups: Sequence[OutputGroup],
    reference: Mapping[str, Array],
    candidate: Mapping[str, Array],
    tolerance: Tolerance,
    noise: Mapping[str, float] | None = None,
) -> list[OutputMetrics]:
    """Compare the outputs that both sides have, for one feed; return the metrics of each output.

    An output without a group is compared alone, as is an output whose group lacks a member. Items of a sequence have no
    group, because their number is known only after a run. ``noise`` is the noise of the original (``noise.noise_of``)
    by output; it raises the bound of a group.
    """
    own = noise or {}
    whole = [group for group in groups if all(n in reference and n in candidate for n in group.names)]
    grouped = {name for group in whole for name in group.names}
    whole += [OutputGroup((n,)) for n in reference if n in candidate and n not in grouped]
    measured = []
    for group in whole:
        bound = tolerance.raised(max((own.get(name, 0.0) for name in group.names), default=0.0))
        for metrics in _compare_group(group, reference, candidate, bound):
            measured.append(replace(metrics, bound=bound.max_rel, noise=own.get(metrics.output)))
    return measured


def _compare_group(
    group: OutputGroup, reference: Mapping[str, Array], candidate: Mapping[str, Array], tolerance: Tolerance
) -> list[OutputMetrics]:
    images = group.integer_images
    near = {n: unwound(reference[n], candidate[n], group.turn) for n in group.names}
    measured = [measure(n, reference[n], near[n], tolerance, integer_image=n in images) for n in group.names]
    if group.kind in STEEP:
        return [_steep(group.kind, m, reference[m.output], candidate[m.output], tolerance) for m in measured]
    if group.kind == "elements" or all(m.passed for m in measured):
        return measured
    rows = _matched(group, reference, candidate, tolerance)
    if rows is None:
        return measured
    share, off, note = rows
    matched = OutputMetrics("", share >= tolerance.rows, out_of_tolerance=1.0 - share, share_equal=share, note=note)
    offs = ((m, off.get(m.output, 0.0)) for m in measured)
    return [replace(matched, output=m.output, max_rel=e, non_finite=m.non_finite, error=e) for m, e in offs]


def _steep(
    kind: str, metrics: OutputMetrics, reference: Array, candidate: Array, tolerance: Tolerance
) -> OutputMetrics:
    """Return the metrics of a steep output, judged by what readers derive from it.

    They are unchanged if the output is clearly within bounds element by element, or if these measures do not apply.
    """
    near = metrics.error > _NEAR * tolerance.max_rel
    judged = steep_error(kind, reference, candidate, tolerance) if near or not metrics.passed else None
    if judged is None:
        return metrics
    error = min(metrics.error, judged.share * tolerance.max_rel)
    if metrics.passed:
        return replace(metrics, error=error)
    passed = judged.share <= 1.0 and (kind != "logits" or metrics.cosine >= tolerance.cosine)
    return replace(metrics, passed=passed, error=error, note=judged.note, only_faint=judged.only_faint)


def _matched(
    group: OutputGroup, reference: Mapping[str, Array], candidate: Mapping[str, Array], tolerance: Tolerance
) -> tuple[float, dict[str, float], str] | None:
    if group.kind == "rows":
        return match_rows(group.names, reference, candidate, tolerance.max_rel)
    reference_rows, candidate_rows = (ranked_rows(group.names, group.count, side) for side in (reference, candidate))
    if reference_rows is None or candidate_rows is None or reference_rows.keys() != candidate_rows.keys():
        return None
    return match_rows(tuple(reference_rows), reference_rows, candidate_rows, tolerance.max_rel)


class Comparison:
    """Compares the outputs feed by feed, and returns the metrics of the worst feed of each output.

    Attributes:
        errors: for each feed, the largest error as a share of its bound, among the outputs with a bound above 0. For a
            steep output this is the largest error of any element. A row that moves a little with this feed may move far
            with another.
    """

    def __init__(
        self, groups: Sequence[OutputGroup], tolerance: Tolerance, noise: Mapping[str, float] | None = None
    ) -> None:
        self._groups, self._tolerance, self._noise = groups, tolerance, noise
        self.errors: list[float] = []
        self._worst: dict[str, OutputMetrics] = {}

    def add(self, reference: Mapping[str, Array], candidate: Mapping[str, Array], feed: str = "") -> None:
        """Compare the outputs of one feed. ``feed`` is its name, or empty: then its number is its name."""
        measured = compare_outputs(self._groups, reference, candidate, self._tolerance, self._noise)
        self.errors.append(max((_largest(m) / m.bound for m in measured if m.bound > 0), default=0.0))
        for one in measured:
            metrics = replace(one, feed=feed or f"feed {len(self.errors)}")
            self._worst[one.output] = max(self._worst.get(one.output, metrics), metrics, key=_badness)

    def results(self) -> list[OutputMetrics]:
        """Return, for each output, the metrics of its worst feed, in the order of the groups.

        The list is empty before the first feed.
        """
        several = len(self.errors) > 1
        return [one if several else replace(one, feed="") for one in self._worst.values()]


def _largest(metrics: OutputMetrics) -> float:
    return metrics.error if metrics.only_faint else max(metrics.error, metrics.max_rel)


def _badness(one: OutputMetrics) -> tuple[float, ...]:
    """Return the key that orders feeds from good to bad.

    A feed whose map shows nothing ranks best, because another feed may prove the map.
    """
    decides = (not one.passed, one.non_finite, not one.only_faint)
    return (*decides, one.error, one.out_of_tolerance, one.max_rel, -one.cosine, bool(one.note))


def bounds_used(tolerance: Tolerance, results: Sequence[OutputMetrics]) -> str:
    """Return the tolerance in words, with the bounds of steep outputs and of noise if ``results`` used them."""
    text = str(tolerance)
    if any(m.error != m.max_rel for m in results):
        text += (
            f"; steep outputs: overlap >= {tolerance.overlap:g}, out of bounds <= {percent(tolerance.outside)}, "
            f"stray <= {tolerance.stray:g}"
        )
    worst = max(results, key=lambda m: m.bound, default=None)
    if worst is not None and worst.bound > tolerance.max_rel:
        text += f"; for {worst.output} {worst.bound:.2g}, because its own noise is {worst.noise:.2g}"
    return text


def describe(metrics: OutputMetrics, tolerance: Tolerance) -> str:
    """Return one sentence about an output that is out of tolerance."""
    name = repr(metrics.output) + (f" on {metrics.feed}" if metrics.feed else "")
    if metrics.non_finite:
        return f"output {name} has {metrics.non_finite} elements that are not finite where the reference is"
    if metrics.note:
        return f"output {name}: {metrics.note}"
    if metrics.share_equal < 1:
        asked = f"{percent(tolerance.share_equal)} are required"
        return f"output {name}: {percent(metrics.share_equal, 2)} of the elements are equal, {asked}"
    bound = metrics.bound or tolerance.max_rel
    if metrics.max_rel > bound:
        return f"output {name}: max|d|/max|ref| is {metrics.max_rel:.3g}, {bound:g} is allowed"
    if metrics.cosine < tolerance.cosine:
        return f"output {name}: cosine is {metrics.cosine:.6f}, {tolerance.cosine:g} is required"
    share = percent(metrics.out_of_tolerance, 2)
    return f"output {name}: {share} of the elements are infinite, NaN or a mask on one side only"
