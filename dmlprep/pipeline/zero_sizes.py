"""Sizes of 0 that leave nothing to prove."""

from __future__ import annotations

from dmlprep.errors import UsageError
from dmlprep.model import Model
from dmlprep.record import StepRecord

__all__ = ["refuse_nothing"]


def refuse_nothing(model: Model, done: StepRecord) -> None:
    """A size of 0 may be right (an empty cache), but not where no output has a number left to compare.

    Raises:
        UsageError: DP210.
    """
    zeros = ", ".join(name for name, size in done.facts.pinned.items() if size == 0)
    outputs = model.ir.graph.outputs
    if zeros and outputs and all(value.shape is not None and 0 in value.shape for value in outputs):
        raise UsageError(
            f"with size 0 for {zeros} every output is empty",
            where=f"step {done.step}",
            code="DP210",
            fix="give a size of 1 or more",
        )
