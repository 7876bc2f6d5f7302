"""Lower optimisation levels, for FP16 models that ONNX Runtime's CPU provider does not run at its default one.

ONNX Runtime 1.24.4 rewrites some valid FP16 graphs into nodes that it has no FP16 kernel for, or crashes over them.
Measured: a decomposed LayerNormalization between FP16 nodes (InsertedPrecisionFreeCast); a Transpose before a MatMul.
That does not show a fault of the model, so the CPU may answer at a lower level, and the verdict reports the level. On
DirectML only the default level counts, because apps use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from dmlprep.graph.model import Model
from dmlprep.metrics import holds_fp16
from dmlprep.runtime import SessionFailure, SessionOptions

Level = Literal["extended", "basic", "disabled"]
T = TypeVar("T")

LOWER_LEVELS: tuple[Level, ...] = ("extended", "basic", "disabled")
"""ONNX Runtime's levels of graph optimisation below the default, in the order in which they are tried."""

_WHAT = {"load": "does not load", "run": "does not run", "crash": "crashes the process"}


@dataclass(frozen=True)
class Lowered:
    """An optimisation level below the default at which a model ran, because it failed or was wrong at the default.

    Attributes:
        kind: kind of the failure at the default: ``load``, ``run``, ``crash``, or ``numbers`` for wrong outputs.
        at_default: the fault at the default level, as the end of a sentence about the model.
    """

    level: Level
    kind: str
    at_default: str

    @classmethod
    def after(cls, failure: SessionFailure, level: Level) -> Lowered:
        """Return a ``Lowered`` for a model that failed at the default level and ran at ``level``."""
        lines = failure.message.strip().splitlines() or [""]
        return cls(level, failure.kind, f"{_WHAT[failure.kind]}: {lines[0]}")

    def __str__(self) -> str:
        level = "off" if self.level == "disabled" else self.level
        return f"graph optimisation {level} (at the default it {self.at_default})"


def lower_levels(model: Model) -> tuple[Level, ...]:
    """Return the lower levels to try if a model fails on the CPU: all for a model with FP16, otherwise none."""
    return LOWER_LEVELS if holds_fp16(model) else ()


def at_some_level(
    run: Callable[[SessionOptions], T], options: SessionOptions, lower: Sequence[Level]
) -> tuple[T, Lowered | None]:
    """Call ``run`` with ``options``. If it fails at the default optimisation level, try ``lower`` levels in turn.

    Returns:
        the result of ``run``; and the lower level at which it worked, ``None`` if it worked with ``options``.

    Raises:
        SessionFailure: the first failure, if lower levels fail too. They are not tried if ``options`` has a level other
            than the default, or the failure is not one of loading, running or a crash.
    """
    try:
        return run(options), None
    except SessionFailure as failure:
        if options.optimization != "all" or failure.kind not in _WHAT:
            raise
        for level in lower:
            try:
                return run(replace(options, optimization=level)), Lowered.after(failure, level)
            except SessionFailure:
                continue
        raise
