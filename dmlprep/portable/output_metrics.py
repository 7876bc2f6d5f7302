"""The metrics of one compared output."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OutputMetrics:
    """The differences between one output and its reference, for the worst of its feeds.

    ``measure.py`` computes the numbers; ``Comparison`` (``comparison.py``) chooses the worst feed.

    Attributes:
        max_abs: largest absolute difference.
        max_rel: the largest difference divided by the largest magnitude of the reference, both without masks; 0 for
            integers that are compared as equal or not. For rows, only matched rows count, and ``max_abs`` is 0.
        cosine: cosine of the two, flattened.
        out_of_tolerance: share of elements out of tolerance, 0 to 1. For rows, the share of rows without a match.
        non_finite: number of NaN or infinite elements where the reference is finite.
        share_equal: for integer, boolean and string outputs, share of equal elements, 0 to 1. For rows, the share of
            matched rows.
        note: for a rule that is not element by element (sets of boxes, maps, classes), the rule and its numbers.
        error: the number that decides, on the scale of ``max_rel``; equal to ``max_rel`` for element by element.
        noise: error of the original against itself: at another optimisation level, or with the last bit of its inputs
            changed. ``None`` if not measured.
        bound: largest ``error`` allowed: from the tolerance, or larger because of the noise.
        feed: name or number of the feed with these numbers; empty if there is only one.
        only_faint: whether it passes only because a map that shows nothing is compared on the scale of 0 to 1.
    """

    output: str
    passed: bool
    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float = 1.0
    out_of_tolerance: float = 0.0
    non_finite: int = 0
    share_equal: float = 1.0
    note: str = ""
    error: float = 0.0
    noise: float | None = None
    bound: float = 0.0
    feed: str = ""
    only_faint: bool = False
