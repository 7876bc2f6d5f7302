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
"""Levels below the default, in the order in which they are tried."""

_WHAT = {"load": "does not load", "run": "does not run", "crash": "crashes the process"}


@dataclass(frozen=True)
class Lowered:
    """A level below the default at which a model ran, because it failed or computed wrong numbers at the default.

    Attributes:
        kind: kind of the failure; ``numbers`` where it ran.
        at_default: the fault at the default level, as the end of a sentence about the model.
    """

    level: Level
    kind: str
    at_default: str

    @classmethod
    def after(cls, failure: SessionFailure, level: Level) -> Lowered:
        """Return the level at which a model ran that failed at the default one."""
        lines = failure.message.strip().splitlines() or [""]
        return cls(level, failure.kind, f"{_WHAT[failure.kind]}: {lines[0]}")

    def __str__(self) -> str:
        level = "off" if self.level == "disabled" else self.level
        return f"graph optimisation {level} (at the default it {self.at_default})"


def lower_levels(model: Model) -> tuple[Level, ...]:
    """Return the levels to try for a model on the CPU: none for a model without FP16."""
    return LOWER_LEVELS if holds_fp16(model) else ()


def at_some_level(
    run: Callable[[SessionOptions], T], options: SessionOptions, lower: Sequence[Level]
) -> tuple[T, Lowered | None]:
    """Run at the level of ``options``; where that is the default and fails, at lower ones until one works.

    Raises:
        SessionFailure: it fails at each level; the failure at the first.
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
