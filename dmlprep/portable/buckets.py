"""Choose the bucket (a model of fixed sizes) for some sizes: an exact match, or the smallest large enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any


@dataclass(frozen=True)
class Choice:
    """The chosen bucket (a model of fixed sizes), and the padding that an input of the app needs for it.

    Attributes:
        bucket: the bucket as the contract, or ``buckets.json``, describes it.
        padding: for each dimension that needs some, how many elements the app must add to its input; empty for an exact
            match. The values that leave the result unchanged depend on the model.
    """

    bucket: Mapping[str, Any]
    padding: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the bucket."""
        return str(self.bucket["name"])

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the bucket, by dimension."""
        return dict(self.bucket["sizes"])


def choose(buckets: Sequence[Mapping[str, Any]], sizes: Mapping[str, int]) -> Choice:
    """Return the bucket with these sizes, or the one with the fewest elements that is large enough in every dimension.

    Args:
        buckets: each has a ``name`` and ``sizes`` (dimension to elements); all have the same dimensions.
        sizes: the sizes of the app's input, for exactly these dimensions.

    Raises:
        ValueError: a dimension is missing or unknown, a size is below 1, or no bucket is large enough.
    """
    known = list(buckets[0]["sizes"])
    if strange := sorted(set(sizes) - set(known)):
        raise ValueError(f"the buckets have no dimension {strange[0]!r}; they have: {', '.join(known)}")
    if missing := [name for name in known if name not in sizes]:
        raise ValueError(f"the size of {missing[0]!r} is missing: the buckets differ in {', '.join(known)}")
    if small := [name for name in known if sizes[name] < 1]:
        raise ValueError(f"the size of {small[0]!r} is {sizes[small[0]]}, but must be a whole number of at least 1")
    room = [one for one in buckets if all(one["sizes"][name] >= sizes[name] for name in known)]
    if not room:
        asked = ", ".join(f"{name}={sizes[name]}" for name in known)
        raise ValueError(f"no bucket has room for {asked}; there are: {', '.join(one['name'] for one in buckets)}")
    bucket = min(room, key=lambda one: prod(one["sizes"].values()))
    padding = {name: bucket["sizes"][name] - sizes[name] for name in known if bucket["sizes"][name] > sizes[name]}
    return Choice(bucket, padding)
