"""The original's own noise: how far it is from itself where nothing that matters has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dmlprep.metrics.tolerances import TOLERANCES
from dmlprep.portable.arrays import Array
from dmlprep.portable.comparison import OutputGroup, compare_outputs

Side = Mapping[str, Array]

LAST_BITS = (2, -2, 4, -4)
"""Units in the last place by which ``stretched`` moves feeds: as far as a device that sums otherwise is off."""


def nudged(feed: Side, seed: int = 0) -> dict[str, Array]:
    """A feed with each finite float moved by one unit in the last place, up or down at random."""
    rng = np.random.default_rng(seed)
    moved = {}
    for name, array in feed.items():
        if array.dtype.kind != "f":
            moved[name] = array
            continue
        ends = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
        with np.errstate(over="ignore", under="ignore"):
            other = np.nextafter(array, ends)
        # Zeros are silence, padding and masks: they stay what they are.
        moved[name] = np.where(np.isfinite(array) & np.isfinite(other) & (array != 0), other, array)
    return moved


def stretched(feed: Side, units: int) -> dict[str, Array]:
    """A feed with each finite float moved by ``units`` in the last place away from zero, or toward it where negative.

    Unlike single nudges, this moves the range of what is quantised, and with it every step.
    """
    moved = {}
    for name, array in feed.items():
        if array.dtype.kind != "f":
            moved[name] = array
            continue
        end = np.copysign(np.inf if units > 0 else 0.0, array).astype(array.dtype)
        other = array
        with np.errstate(over="ignore", under="ignore"):
            for _ in range(abs(units)):
                other = np.nextafter(other, end)
        moved[name] = np.where(np.isfinite(array) & np.isfinite(other) & (array != 0), other, array)
    return moved


def noise_of(groups: Sequence[OutputGroup], want: Side, others: Iterable[Side]) -> dict[str, float]:
    """The largest error of each output between the original's runs on one feed, as the proof measures errors.

    Integers and strings are left out: they follow from floats.
    """
    worst: dict[str, float] = {}
    for got in others:
        for metrics in compare_outputs(groups, want, got, TOLERANCES["fp16-emulation"]):
            if want[metrics.output].dtype.kind == "f":
                worst[metrics.output] = max(worst.get(metrics.output, 0.0), metrics.error)
    return worst
