"""The table of precision faults: operators that a target runs in FP16, and their errors there.

Facts only. ``precision.policy`` decides how careful to be about them, and finds them in a graph.
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
        ops: operator types with the fault, or all operators of a chain of nodes that has it together; empty for any.
        when: the values with which it occurs. ``always``: any values (the file does not load). ``usual``: the values
            that models usually have. ``by value``: some values only, which the range profile finds. ``never kept``: no
            node stays in FP32 because of it, since the operator is so common that FP16 would have no gain.
        limits: the numbers from which on it goes wrong, by the measured property (``standard_deviation``).
        first: oldest affected release (``1.15``) that dmlprep knows.
        last: newest affected release; ``None`` if the newest release has it.
        confidence: ``measured`` on ``measured_on``; ``source``: follows from the number format, or from a source;
            ``reported`` by users; ``environment``: measured, but the CPU driver may be the cause.
        measured_on: releases on which it was measured. Other releases between ``first`` and ``last`` are inferred.
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
        """Return whether a release (``(1, 24)``) is affected."""
        return within(release, self.first, self.last)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    faults: list[PrecisionFault]


@lru_cache(maxsize=1)
def _all() -> tuple[PrecisionFault, ...]:
    data = (resources.files("dmlprep.directml.targets") / "data" / "precision.json").read_bytes()
    return tuple(msgspec.json.decode(data, type=_File).faults)


def precision_faults(target: Target | None = None) -> tuple[PrecisionFault, ...]:
    """The faults of a target's release; every known fault without a target, or if the target names no release."""
    if target is None or target.opset_only:
        return _all()
    return tuple(fault for fault in _all() if fault.concerns(target.release))
