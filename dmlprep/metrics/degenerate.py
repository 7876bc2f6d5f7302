"""Find outputs that prove nothing, because a wrong model would give the same output on these inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dmlprep.portable.arrays import Array
from dmlprep.portable.comparison import OutputGroup
from dmlprep.portable.measure import FLOOR, MASK, Tolerance
from dmlprep.portable.steep import ACTIVE, STEEP, classes_axis

_FAINT = 0.01
"""A map of probabilities proves nothing if all its values are below this."""

_SATURATED = 1e-6
"""Probabilities are saturated if each is this near to 0 or 1: they hide differences in the numbers behind them."""


def degenerate(
    groups: Sequence[OutputGroup], feeds: Sequence[Mapping[str, Array]], tolerance: Tolerance
) -> dict[str, str]:
    """Return output -> why it proves nothing; outputs that prove something are not in the result.

    An output proves nothing if it is nearly zero, or has no finite numbers. A steep output also proves nothing if it is
    nearly constant, saturated or a map that detects nothing. ``feeds``: the outputs of the original on each feed, by
    name; those that are not floating-point, or are empty, are ignored.
    """
    kinds = {name: group.kind for group in groups for name in group.names}
    reasons = {}
    for name in feeds[0] if feeds else ():
        arrays = [feed[name] for feed in feeds if name in feed and feed[name].size and feed[name].dtype.kind == "f"]
        why = _why(kinds.get(name, "elements"), arrays, tolerance) if arrays else ""
        if why:
            reasons[name] = why
    return reasons


def faint_maps(groups: Sequence[OutputGroup], feeds: Sequence[Mapping[str, Array]]) -> frozenset[str]:
    """Return the names of the outputs that are maps of probabilities, all below 0.1 on every feed (nothing detected).

    ``feeds``: the original's outputs on each feed, by name; without feeds, the result has all maps.
    """
    maps = [name for group in groups if group.kind == "map" for name in group.names]
    return frozenset(n for n in maps if all(np.max(feed[n], initial=0.0) < ACTIVE for feed in feeds))


def _why(kind: str, arrays: Sequence[Array], tolerance: Tolerance) -> str:
    if (span := _range(arrays)) is None:
        return "all its elements are NaN, infinite or masks"
    low, high = span
    largest = max(-low, high)
    if largest <= FLOOR:
        return f"it is nearly zero: its largest element is {largest:.2g}"
    if kind not in STEEP:
        return ""
    if kind == "map" and high < _FAINT:
        return f"its largest probability is {high:.2g}: the model detects nothing in these inputs"
    many = sum(array.size for array in arrays) > 1
    if many and (high - low) <= min(tolerance.max_rel, _FAINT) * largest:
        return f"it is nearly constant, from {low:.4g} to {high:.4g}"
    if kind == "classes" and many and _saturated(arrays):
        return "it is saturated: the same class has all the probability in every row"
    return ""


def _range(arrays: Sequence[Array]) -> tuple[float, float] | None:
    """Return the smallest and the largest number, without masks; ``None`` if there is none."""
    finite = [np.asarray(array[np.isfinite(array)], np.float64) for array in arrays]
    parts = [part[part > MASK] for part in finite if np.any(part > MASK)]
    return (min(float(p.min()) for p in parts), max(float(p.max()) for p in parts)) if parts else None


def _saturated(arrays: Sequence[Array]) -> bool:
    winners = set[int]()
    for array in arrays:
        axis = classes_axis("classes", array)
        if axis is None or np.any(np.minimum(np.abs(array), np.abs(1 - array)) > _SATURATED):
            return False
        winners.update(np.argmax(array, axis=axis).reshape(-1).tolist())
    return len(winners) == 1
