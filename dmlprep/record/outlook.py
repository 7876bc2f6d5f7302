"""Predictions of ``prepare``, for ``plan`` and ``check``."""

from __future__ import annotations

from typing import Any

import msgspec

from dmlprep.core.text.shell import command_line
from dmlprep.record.memory import MemoryEstimate
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.steps import StepRecord


class Fate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The future of a node that runs on the CPU; shape arithmetic that ONNX Runtime keeps there is left out.

    Attributes:
        op: operator and version: ``Gelu-20``.
        step: the step that moves it to DirectML or removes it; empty if it stays.
        reason: why it stays; empty if it does not.
    """

    node: str
    op: str
    step: str = ""
    reason: str = ""
    role: str = "compute"


class Half(msgspec.Struct, frozen=True):
    """The number of floating-point nodes in FP16 (``half``) and FP32 after the step, without casts, by the rules alone.

    Attributes:
        by_rule: number of nodes that each rule keeps in FP32.
        search: whether ``prepare`` then searches for more nodes to keep.
    """

    half: int
    single: int
    by_rule: dict[str, int]
    search: bool


class Outlook(msgspec.Struct, frozen=True, omit_defaults=True):
    """The prediction of ``prepare`` for a model.

    Attributes:
        sizes, values: sizes of dimensions and values of inputs that the user set.
        free: dimensions of inputs that stay free, with their places.
        after: ``None`` if a step refuses the model; ``refused`` says why.
        staying: compute nodes on the CPU afterwards, also those that a step made.
        memory: memory of the device for a session afterwards; ``None`` if no step changed the model.
        example: the same with a size for each free dimension, if there are any; the graph may refuse these sizes.
    """

    recipe: str
    target: str
    sizes: dict[str, int]
    free: dict[str, list[str]]
    opset_before: int
    opset_after: int
    opset_chosen_by: str
    before: PlacementFacts
    after: PlacementFacts | None
    steps: list[StepRecord]
    fates: list[Fate]
    staying: list[Fate]
    half: Half | None = None
    refused: str = ""
    values: dict[str, Any] = {}
    memory: MemoryEstimate | None = None
    example: Outlook | None = None

    @property
    def best(self) -> Outlook:
        """The prediction with sizes for free dimensions, if no step refuses them; otherwise this one."""
        return self if self.example is None or self.example.refused else self.example

    @property
    def pins(self) -> str:
        """The sizes of the example as options of the command line; empty without an example."""
        added = {k: v for k, v in (self.example or self).sizes.items() if k not in self.sizes}
        return " ".join(command_line("--pin", f"{name}={size}") for name, size in added.items())
