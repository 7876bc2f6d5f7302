"""Choose the bucket (a model of fixed sizes) for some sizes: an exact match, or the smallest large enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any


@dataclass(frozen=True)
class Choice:
    """The bucket for some sizes.

    Attributes:
        bucket: the bucket as the contract, or ``buckets.json``, describes it.
        padding: for each dimension, how many elements the app must add to its input; empty for an exact match. The
            values that leave the result unchanged depend on the model.
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

    Each bucket has a ``name`` and ``sizes`` (dimension to elements). ``sizes`` must name the same dimensions.

    Raises:
        ValueError: a dimension is missing or unknown, or no bucket is large enough.
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
