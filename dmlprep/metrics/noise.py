"""The original's own noise: the difference between runs that should be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from dmlprep.metrics.tolerances import TOLERANCES
from dmlprep.portable.arrays import Array
from dmlprep.portable.comparison import OutputGroup, compare_outputs

Side = Mapping[str, Array]

LAST_BITS = (2, -2, 4, -4)
"""Units in the last place by which ``stretched`` moves feeds: the error of a device that sums in another order."""


def nudged(feed: Side, seed: int = 0) -> dict[str, Array]:
    """A feed with each finite float moved by one unit in the last place, up or down at random."""
    rng = np.random.default_rng(seed)
    return _moved(feed, lambda array: np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf), 1)


def stretched(feed: Side, units: int) -> dict[str, Array]:
    """A feed with each finite float moved by ``units`` in the last place: away from zero, or toward it if negative.

    Unlike single nudges, this moves the range of quantised values, and with it every step.
    """
    return _moved(feed, lambda array: np.copysign(np.inf if units > 0 else 0.0, array), abs(units))


def _moved(feed: Side, toward: Callable[[Array], Array], units: int) -> dict[str, Array]:
    moved = dict(feed)
    for name, array in feed.items():
        if array.dtype.kind == "f":
            end, other = toward(array).astype(array.dtype), array
            with np.errstate(over="ignore", under="ignore"):
                for _ in range(units):
                    other = np.nextafter(other, end)
            # Zeros are silence, padding and masks: they stay zeros.
            moved[name] = np.where(np.isfinite(array) & np.isfinite(other) & (array != 0), other, array)
    return moved


def noise_of(groups: Sequence[OutputGroup], want: Side, others: Iterable[Side]) -> dict[str, float]:
    """The largest error of each output between the original's runs on one feed, as the proof measures errors.

    Integers and strings are ignored: they follow from floats.
    """
    worst: dict[str, float] = {}
    for got in others:
        for metrics in compare_outputs(groups, want, got, TOLERANCES["fp16-emulation"]):
            if want[metrics.output].dtype.kind == "f":
                worst[metrics.output] = max(worst.get(metrics.output, 0.0), metrics.error)
    return worst
