"""Compare the outputs of a model with those of its reference, group by group. The worst feed counts.

A kit carries this file as it is: Python 3.9 and numpy alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dmlprep.metrics.measure import Tolerance, measure
from dmlprep.metrics.rows import match_rows, ranked_rows
from dmlprep.record.output_metrics import OutputMetrics
from dmlprep.record.shares import percent

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["Comparison", "OutputGroup", "compare_outputs", "describe"]


@dataclass(frozen=True)
class OutputGroup:
    """Outputs that are compared together.

    Attributes:
        names: of the outputs.
        kind: ``elements``: element by element. ``rows``: where that fails, the rows of all of them, side by side, are
            matched as a set (boxes, scores and labels of a detector). ``ranked``: as ``rows``, for rows that TopK
            chose: they lie behind a batch axis or not.
        count: of ``ranked``, how many rows TopK chooses; ``None`` where the graph does not say.
        integer_images: of ``names``, integers that are rounded numbers.
    """

    names: tuple[str, ...]
    kind: Literal["elements", "rows", "ranked"] = "elements"
    count: int | None = None
    integer_images: tuple[str, ...] = ()


def compare_outputs(
    groups: Sequence[OutputGroup], reference: Mapping[str, Array], candidate: Mapping[str, Array], tolerance: Tolerance
) -> list[OutputMetrics]:
    """Compare the outputs that both sides have, on one feed.

    An output of no group, or of one that lacks another output, is compared alone. The items of a sequence are such: how
    many there are is known only after a run.
    """
    whole = [group for group in groups if all(n in reference and n in candidate for n in group.names)]
    grouped = {name for group in whole for name in group.names}
    whole += [OutputGroup((n,)) for n in reference if n in candidate and n not in grouped]
    return [metrics for group in whole for metrics in _compare_group(group, reference, candidate, tolerance)]


def _compare_group(
    group: OutputGroup, reference: Mapping[str, Array], candidate: Mapping[str, Array], tolerance: Tolerance
) -> list[OutputMetrics]:
    found = [
        measure(n, reference[n], candidate[n], tolerance, integer_image=n in group.integer_images) for n in group.names
    ]
    if group.kind == "elements" or all(m.passed for m in found):
        return found
    rows = _matched(group, reference, candidate, tolerance)
    if rows is None:
        return found
    share, off, note = rows
    return [
        OutputMetrics(
            output=m.output,
            passed=share >= tolerance.rows,
            max_rel=off.get(m.output, 0.0),
            out_of_tolerance=1.0 - share,
            non_finite=m.non_finite,
            share_equal=share,
            note=note,
        )
        for m in found
    ]


def _matched(
    group: OutputGroup, reference: Mapping[str, Array], candidate: Mapping[str, Array], tolerance: Tolerance
) -> tuple[float, dict[str, float], str] | None:
    if group.kind == "rows":
        return match_rows(group.names, reference, candidate, tolerance.max_rel)
    left, right = (ranked_rows(group.names, group.count, side) for side in (reference, candidate))
    if left is None or right is None or left.keys() != right.keys():
        return None
    return match_rows(tuple(left), left, right, tolerance.max_rel)


class Comparison:
    """Collects feeds, and tells the worst of each output."""

    def __init__(self, groups: Sequence[OutputGroup], tolerance: Tolerance) -> None:
        self._groups = groups
        self._tolerance = tolerance
        self._worst: dict[str, OutputMetrics] = {}

    def add(self, reference: Mapping[str, Array], candidate: Mapping[str, Array]) -> None:
        """Compare one feed's outputs."""
        for metrics in compare_outputs(self._groups, reference, candidate, self._tolerance):
            worst = self._worst.get(metrics.output)
            self._worst[metrics.output] = metrics if worst is None else _worse(worst, metrics)

    def results(self) -> list[OutputMetrics]:
        """The worst of each output, in the order of the groups; empty before the first feed."""
        return list(self._worst.values())


def _worse(a: OutputMetrics, b: OutputMetrics) -> OutputMetrics:
    """Both in one: the worse of each number."""
    return OutputMetrics(
        output=a.output,
        passed=a.passed and b.passed,
        max_abs=max(a.max_abs, b.max_abs),
        max_rel=max(a.max_rel, b.max_rel),
        cosine=min(a.cosine, b.cosine),
        out_of_tolerance=max(a.out_of_tolerance, b.out_of_tolerance),
        non_finite=a.non_finite + b.non_finite,
        share_equal=min(a.share_equal, b.share_equal),
        note=a.note if not a.passed or b.passed else b.note,
    )


def describe(metrics: OutputMetrics, tolerance: Tolerance) -> str:
    """One sentence on an output that is out of tolerance."""
    name = metrics.output
    if metrics.non_finite:
        return f"output {name!r} has {metrics.non_finite} elements that are not finite where the reference is"
    if metrics.note:
        return f"output {name!r}: {metrics.note}"
    if metrics.share_equal < 1:
        asked = f"{percent(tolerance.share_equal)} are asked for"
        return f"output {name!r}: {percent(metrics.share_equal, 2)} of the elements are equal, {asked}"
    if metrics.max_rel > tolerance.max_rel:
        return f"output {name!r}: max|d|/max|ref| is {metrics.max_rel:.3g}, {tolerance.max_rel:g} is allowed"
    if metrics.cosine < tolerance.cosine:
        return f"output {name!r}: cosine is {metrics.cosine:.6f}, {tolerance.cosine:g} is asked for"
    return (
        f"output {name!r}: {percent(metrics.out_of_tolerance, 2)} of the elements are infinite or NaN on one side only"
    )
