"""The table of precision faults: operators that a target runs in FP16, and what they then do wrong.

Facts only. ``precision.policy`` decides how careful to be about them, and finds where in a graph they lie.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Literal

import msgspec

from dmlprep.directml.targets.releases import within
from dmlprep.directml.targets.target import Target


class PrecisionFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of ``data/precision.json``.

    Attributes:
        id: name of the fault, and of the policy's rule about it (``normalisation``).
        ops: operator types that it concerns, or that a stretch of the graph which it concerns is made of; empty for
            any.
        when: ``always``, whatever the values are (the file does not load); ``usual``: with the values that models
            have; ``by value``: only with some, which the range profile finds; ``never kept``: known, but so common an
            operator that FP16 would gain nothing without it.
        limits: the numbers from which on it goes wrong, by what is measured (``standard_deviation``).
        first: oldest release concerned (``1.15``), of those that dmlprep knows.
        last: newest release concerned, ``None`` while it lasts.
        confidence: ``measured`` on ``measured_on``; ``source``: follows from the number format, or read in a source;
            ``reported`` by users; ``environment``: measured, but the CPU driver may be the cause.
        measured_on: releases on which it was seen. Others between ``first`` and ``last`` are inferred.
    """

    id: str
    ops: list[str]
    outcome: Literal["wrong numbers", "overflow", "lost digits", "crash", "create fails", "runs on the CPU"]
    when: Literal["always", "usual", "by value", "never kept"]
    limits: dict[str, float]
    why: str
    first: str
    last: str | None
    confidence: Literal["measured", "source", "reported", "environment"]
    measured_on: list[str]
    sources: list[str]

    def concerns(self, release: tuple[int, int]) -> bool:
        """Whether a release (``(1, 24)``) is among those concerned."""
        return within(release, self.first, self.last)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    faults: list[PrecisionFault]


@lru_cache(maxsize=1)
def _all() -> tuple[PrecisionFault, ...]:
    data = (resources.files("dmlprep.directml.targets") / "data" / "precision.json").read_bytes()
    return tuple(msgspec.json.decode(data, type=_File).faults)


def precision_faults(target: Target | None = None) -> tuple[PrecisionFault, ...]:
    """The faults of a target's release; every fault known where the target names none."""
    if target is None or target.opset_only:
        return _all()
    return tuple(fault for fault in _all() if fault.concerns(target.release))
