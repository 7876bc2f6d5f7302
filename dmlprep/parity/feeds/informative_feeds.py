"""Made feeds that show more, where the original gives the same whatever it is fed: of one sign, with wider bounds.

A detector that finds nothing and a threshold that nothing passes prove nothing. The bar stays where it is: these feeds
are compared as all others are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from dmlprep.metrics import OutputGroup, choose_tolerance, degenerate, tells_something
from dmlprep.portable.arrays import Array
from dmlprep.portable.measure import FLOOR

_FEWEST = 8
"""Elements of an input that is data, and no scale, size or bound."""

_UPPER, _LOWER = ("max", "upper", "high"), ("min", "lower", "low")


def silent(groups: Sequence[OutputGroup], outputs: Sequence[Mapping[str, Array]]) -> set[str]:
    """The outputs that tell nothing on these feeds, by name."""
    # The widest tolerance: what it takes for constant is looked at again, and what it does not, no other does.
    widest = choose_tolerance("auto", fp16=True, quantized=True, device="cpu")
    mute = {name for name in outputs[0] if not any(tells_something(feed[name]) for feed in outputs if name in feed)}
    return mute | degenerate(groups, outputs, widest).keys() if outputs else set()


def vanishes(outputs: Mapping[str, Array]) -> bool:
    """Whether an output is zero but for rounding."""
    floats = [a for a in outputs.values() if a.size and a.dtype.kind == "f"]
    return any(np.all(np.isfinite(a)) and float(np.max(np.abs(a))) <= FLOOR for a in floats)


def variations(feed: Mapping[str, Array], kept: Collection[str]) -> Iterator[dict[str, Array]]:
    """Other values for a made feed, of the same shapes and types; inputs in ``kept`` stay as they are."""
    data = [n for n, a in feed.items() if a.dtype.kind == "f" and a.size >= _FEWEST and n not in kept]
    bounds = {n: _wider(n, a) for n, a in feed.items() if a.size == 1 and a.dtype.kind in "fi" and n not in kept}
    wide = {**feed, **{name: array for name, array in bounds.items() if array is not None}}
    if any(array is not None for array in bounds.values()):
        yield dict(wide)
    if not data:
        return
    for change in (np.abs, lambda a: -np.abs(a)):
        yield {**wide, **{name: change(feed[name]) for name in data}}


def _wider(name: str, bound: Array) -> Array | None:
    """A lone number that is called a bound, moved so that more lies within; ``None`` for another."""
    called = name.lower()
    upper, lower = (any(word in called for word in words) for words in (_UPPER, _LOWER))
    if upper == lower:
        return None
    return np.asarray(bound * 1000 if upper else bound * 0).astype(bound.dtype).reshape(bound.shape)
