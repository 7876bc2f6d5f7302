"""The result of ``tune``: candidates with their placement, proofs and times, and the chosen recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dmlprep.record.speed import Bench, Ratio

PLACEMENT, TIME = "placement", "time"
"""Values of ``Tuned.chosen_by``: the chosen candidate was the best by placement, or by time."""

_STEPS = 16
"""Steps of the rank for each doubling of bytes, so that few bytes do not decide. Opsets differ by a few bytes of
axes; FP16 halves the bytes."""


@dataclass(frozen=True)
class Figures:
    """The placement of a model, in numbers. Fewer is better; ``rank`` has the numbers that count, in their order.

    Attributes:
        nodes: number of nodes without constants.
        cpu_nodes, cpu_compute: number of nodes on the CPU, and of compute nodes among them.
        partitions: number of graphs that DirectML fuses.
        alone: number of nodes on DirectML outside of fused graphs. Casts do not count: FP16 saves more than they cost.
        crossings, crossing_bytes: number of tensors copied between devices in each run, and their size in bytes, as far
            as known.
        model_bytes, feed_bytes: size in bytes of all tensors, and of inputs and outputs (``None`` if a size is free).
        runs: whether every node has a kernel on some provider, so that a session is possible.
    """

    opset: int
    fp16: bool
    nodes: int
    cpu_nodes: int
    cpu_compute: int
    partitions: int
    alone: int
    crossings: int
    crossing_bytes: int
    model_bytes: int
    feed_bytes: int | None = None
    runs: bool = True

    @property
    def moved_bytes(self) -> int:
        """The least number of bytes that a run reads or copies: weights, inputs, outputs and copies between devices.

        Unknown sizes count as 0.
        """
        return self.model_bytes + (self.feed_bytes or 0) + self.crossing_bytes

    @property
    def rank(self) -> tuple[int, ...]:
        """The key for sorting candidates: the smallest is the best."""
        return (
            not self.runs,
            self.cpu_compute,
            self.partitions + self.alone,
            self.crossings,
            round(_STEPS * math.log2(1 + self.moved_bytes)),
            self.nodes,
        )

    @property
    def whole(self) -> bool:
        """True if one fused graph contains all nodes: other candidates can be better only in bytes and nodes."""
        return self.runs and self.cpu_nodes == 0 and self.partitions + self.alone <= 1 and not self.crossings


@dataclass(frozen=True)
class Candidate:
    """One way to prepare the model: ``name`` is its recipe with the settings that differ, ``recipe`` all of it as TOML.

    Attributes:
        figures: measured on the prepared model if it was proved, otherwise predicted; ``None`` if a step refuses.
        proof: outcome of its proof; empty without one.
        reason: why a step refuses it, or it is not proved; otherwise empty.
        devices: devices on which it passed.
        time: its median time as a multiple of the original model's; ``None`` if it was not timed.
        same: names of other candidates that give the same model.
    """

    name: str
    recipe: str
    figures: Figures | None = None
    proof: Literal["", "passed", "failed", "not-proven", "not-run"] = ""
    reason: str = ""
    devices: tuple[str, ...] = ()
    time: Ratio | None = None
    same: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tuned:
    """The result of ``tune``.

    Attributes:
        before: the figures of the original model.
        candidates: best first, those that a step refuses last.
        chosen, recipe: name and recipe of the best candidate that passed, or of the best by rank if there were no
            proofs; empty if there is none.
        left_out: candidates that were not tried, each with the reason.
        free: dimensions of inputs without a size: DirectML fuses no node that depends on them.
        target_reason: why ``target`` is the default, as in ``RunRecord``.
        searched_seconds: time of the ranking.
        exit_code: 0: a recipe was found, and proved if required; 1: no candidate is good; 3: a required check did not
            run.
    """

    model: str
    target: str
    before: Figures
    candidates: tuple[Candidate, ...]
    target_reason: str = ""
    chosen: str = ""
    chosen_by: str = PLACEMENT
    recipe: str = ""
    left_out: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    bench: Bench | None = None
    searched_seconds: float = 0.0
    seconds: float = 0.0
    exit_code: int = 0
    error: str = ""
    format: int = 1
