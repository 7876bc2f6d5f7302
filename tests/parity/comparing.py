"""Compare model files, or a file with a reference that is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dmlprep import parity
from dmlprep.graph.model import Model
from dmlprep.parity import Reference, file_candidate
from dmlprep.portable.arrays import Array
from dmlprep.record import Verdict
from dmlprep.record.aliases import SessionDevice

__all__ = ["compare"]


def compare(
    reference: Path | Reference,
    candidate: Path,
    feeds: Sequence[Mapping[str, Array]] = (),
    *,
    device: SessionDevice = "cpu",
    tolerance: str = "auto",
    time_limit: float = 600.0,
    **options: Any,
) -> Verdict:
    """The verdict on ``candidate``; ``options`` as in ``Reference.of``."""
    model = Model.open(candidate)
    if isinstance(reference, Path):
        with Reference.of(reference, feeds, like=model, time_limit=time_limit, **options) as made:
            return parity.compare(made, file_candidate(model, device), tolerance, time_limit)
    return parity.compare(reference, file_candidate(model, device), tolerance, time_limit)
