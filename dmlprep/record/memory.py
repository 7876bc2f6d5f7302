"""Estimates of the device memory that a model needs, for records and contracts."""

from __future__ import annotations

from typing import Literal

import msgspec


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tensor, or one fused graph (named by its first node), in the device's memory at the peak.

    Attributes:
        kind: ``weights`` live as long as the session, the others as long as a run; ``scratch`` is a node's work space.
        nbytes: its size in bytes.
        node: the node that makes or reads it; empty if there is none.
    """

    name: str
    kind: Literal["weights", "activation", "fused graph", "scratch", "input", "output"]
    nbytes: int
    node: str = ""


class Way(msgspec.Struct, frozen=True):
    """A way to need less memory: its name ``how`` (``FP16``, ``batch 1``), and in ``option`` what to do, in words.

    ``peak`` is the estimated peak with this way, in bytes.
    """

    how: str
    option: str
    peak: int


class MemoryEstimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The estimated memory of a DirectML session for a model, in bytes.

    A GPU with its own memory uses two kinds: its own (fields without ``shared``), and system memory, which it reads
    over the bus. A GPU without its own memory takes both from the system.

    Attributes:
        unknown: why there is no estimate; empty if there is one. All numbers are 0 then.
        peak, load: the largest use of the device's own memory during a run, and the use before the first run.
        shared_peak, shared_load: the same for the system memory that the device reads: copies of fused weights, and
            transfers.
        weights: part of ``load``: DirectML's copies of the weights.
        activations, feeds: parts of ``peak``: the tensors between nodes and inside fused graphs; inputs and outputs.
        at: the node, or the first node of the fused graph, that runs at the peak.
        largest: the largest tensors at the peak, largest first.
        ways: if the device's memory is known and less than ``peak``: ways to need less, the most effective first.
            Otherwise empty.
    """

    unknown: str = ""
    peak: int = 0
    load: int = 0
    shared_peak: int = 0
    shared_load: int = 0
    weights: int = 0
    activations: int = 0
    feeds: int = 0
    at: str = ""
    largest: list[Held] = []
    ways: list[Way] = []

    @property
    def known(self) -> bool:
        """True if there is an estimate."""
        return not self.unknown
