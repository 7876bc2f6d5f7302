"""Choose among models of fixed sizes: the one of these sizes, or the smallest that has room for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any


@dataclass(frozen=True)
class Choice:
    """The bucket for some sizes.

    Attributes:
        bucket: as the contract, or ``buckets.json``, describes it.
        padding: by dimension, how many elements the app has to add to its input; empty where the sizes are the
            bucket's own. What they must hold so that they change nothing depends on the model.
    """

    bucket: Mapping[str, Any]
    padding: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the bucket."""
        return str(self.bucket["name"])

    @property
    def sizes(self) -> dict[str, int]:
        """Of the bucket, by dimension."""
        return dict(self.bucket["sizes"])


def choose(buckets: Sequence[Mapping[str, Any]], sizes: Mapping[str, int]) -> Choice:
    """The bucket of exactly these sizes; else, of those that are as large in every dimension, that of fewest elements.

    Each bucket has a ``name`` and ``sizes`` by dimension, in elements, of the same dimensions as ``sizes``.

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
