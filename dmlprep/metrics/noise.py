"""The original model's own noise: how far its outputs differ between runs that should be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from dmlprep.metrics.tolerances import TOLERANCES
from dmlprep.portable.arrays import Array
from dmlprep.portable.comparison import OutputGroup, compare_outputs

Side = Mapping[str, Array]

LAST_BITS = (2, -2, 4, -4)
"""The units in the last place to pass to ``stretched``: about the error of a device that sums in another order."""


def nudged(feed: Side, seed: int = 0) -> dict[str, Array]:
    """Return a copy of a feed with each finite, nonzero float moved by one unit in the last place, up or down.

    The direction is random; ``seed`` decides it. Whole numbers move away from zero: they may be indices, and a Cast to
    integers cuts them back.
    """
    rng = np.random.default_rng(seed)

    def toward(array: Array) -> Array:
        direction = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf)
        return np.where(np.trunc(array) == array, np.copysign(np.inf, array), direction)

    return _moved(feed, toward, 1)


def stretched(feed: Side, units: int) -> dict[str, Array]:
    """Return a copy of a feed with each finite, nonzero float moved by ``units`` in the last place.

    The floats move away from zero; toward zero if ``units`` is negative. Unlike random moves, this changes the range of
    values that the model quantises, and with it every quantisation step.
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
    """Return the largest error of each floating-point output between the original's runs on one feed.

    Errors are measured as in the proof. ``want``: the outputs of one run by name; ``others``: those of other runs.
    """
    worst: dict[str, float] = {}
    for got in others:
        for metrics in compare_outputs(groups, want, got, TOLERANCES["fp16-emulation"]):
            if want[metrics.output].dtype.kind in "fV":  # ml_dtypes has the kind "V": bfloat16
                worst[metrics.output] = max(worst.get(metrics.output, 0.0), metrics.error)
    return worst
