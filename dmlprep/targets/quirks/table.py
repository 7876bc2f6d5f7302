"""The table of quirks: kernels that DirectML takes a node with, and that then fail or compute something else."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Literal

import msgspec

__all__ = ["Quirk", "quirks"]


class Quirk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of ``data/quirks.json``.

    Attributes:
        id: name of its matcher, and of its rewrite where it has one (``reshape-allowzero``).
        code: finding code, with a page in ``docs/codes``.
        ops: operator keys that it concerns; empty for any.
        outcome: what happens on DirectML.
        first: oldest release concerned (``1.15``), of those that dmlprep knows.
        last: newest release concerned, ``None`` while it lasts.
        confidence: ``measured`` on the real provider, of ``measured_on``; ``source``: read in the provider's source;
            ``reported`` by users; ``environment``: measured, but the CPU driver may be the cause.
        measured_on: releases on which it was seen. Others between ``first`` and ``last`` are inferred.
        fix: whether the fix-quirks pass has an equal form for it.
    """

    id: str
    code: str
    ops: list[str]
    outcome: Literal["create fails", "run fails", "crash", "wrong numbers", "empty output", "runs on the CPU"]
    first: str
    last: str | None
    confidence: Literal["measured", "source", "reported", "environment"]
    measured_on: list[str]
    fix: bool
    sources: list[str]

    def concerns(self, release: tuple[int, int]) -> bool:
        """Whether a release (``(1, 24)``) is among those concerned."""
        return _release(self.first) <= release and (self.last is None or release <= _release(self.last))


def _release(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


class _File(msgspec.Struct):
    format: int
    quirks: list[Quirk]


@lru_cache(maxsize=1)
def quirks() -> tuple[Quirk, ...]:
    """Every quirk known, in the order of their codes."""
    data = (resources.files("dmlprep.targets") / "data" / "quirks.json").read_bytes()
    return tuple(msgspec.json.decode(data, type=_File).quirks)
