"""The results of the steps of a run, with their facts."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dmlprep.record.findings import Finding

_Number = float | None
"""A number of a record. JSON has no infinity, so it may be null."""


class KeepReason(msgspec.Struct, frozen=True):
    """Why a node stays in FP32: the name of the rule (``user`` if the user names the node), and its reason."""

    rule: str
    why: str


class Trial(msgspec.Struct, frozen=True):
    """One run of a search for nodes to keep: their number, and the largest error of an output with them."""

    kept_nodes: int
    error: _Number
    seconds: float = 0.0


class Block(msgspec.Struct, frozen=True):
    """A block of nodes that a search tried in FP16 alone, with the error that it causes."""

    block: str
    error: _Number
    nodes: int = 0


class Worst(msgspec.Struct, frozen=True):
    """A value of the range profile: its largest magnitude, and the share of its elements below FP16's normal range."""

    value: str
    peak: _Number
    small: _Number


class Profile(msgspec.Struct, frozen=True):
    """The largest magnitude of each node's floating output over all feeds, in the order of the graph.

    ``left_out`` is the number of finite values of smaller magnitude that are not included. Infinite values never are.
    """

    nodes: list[str]
    peaks: list[float | None]
    left_out: int = 0

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.peaks):
            raise ValueError("a range profile has a peak for each node")


class FreeDimension(msgspec.Struct, frozen=True):
    """A dimension that stays free.

    Attributes:
        where: its places, as ``INPUT:AXIS``.
        python, c: calls of ONNX Runtime that fix its size, in each language.
    """

    name: str
    denotation: str
    where: list[str]
    python: list[str]
    c: list[str]


class Inlined(msgspec.Struct, frozen=True):
    """The number of inlined functions and branches."""

    functions: int
    branches: int


class StepFacts(msgspec.Struct, omit_defaults=True):
    """The facts of a step. Each pass sets those that it knows.

    Attributes:
        nodes_changed: number of nodes that the opset step changed, by the way it changed them.
        weights_not_inputs, constants_that_were_inputs: number of weights that are no longer graph inputs (``opset``,
            and ``pin`` for models before IR version 4).
        values: shapes of the values that replace inputs, by input.
        pinned: sizes by dimension, or by ``INPUT:AXIS``.
        nodes, bytes: number of nodes, and size of the tensors in bytes, before and after ``simplify``, even if the
            result was undone; ``None`` if onnxsim gave no result.
        guard_on_values: whether the guard of ``simplify`` compared outputs, in words.
        fused, rewritten: number of new fused nodes by operator, and of rewritten nodes by quirk.
        casts: remaining casts between floating types; ``None`` if no step to FP16 ran.
        kept_fp32, kept_by_rule: floating nodes that stay in FP32, and their number by rule.
        emulation: where the FP16 emulation rounds, and how.
        outputs_in_fp16: error of each output with everything in FP16.
        islands, islands_computing: nodes that the search of the FP16 step keeps in FP32, with the reason; those of them
            that also compute in FP32.
        island_recipe, keep_recipe: TOML that gives the same result without a search, for the FP16 step and for
            ``weights``.
        emulation_error: largest error of an output in the emulation of the result.
        error_of_all, error: largest error of an output in the search of ``weights``: with every weight rounded, and
            with the result.
        kept_weights: nodes that keep their weights, with the reason.
        kept_bytes, bytes_to_round: size in bytes of the weights that stay, and of all that could be rounded.
        products, tables, convolutions: number of nodes of each kind with rounded weights.
    """

    ir_before: int | None = None
    ir_after: int | None = None
    opset_before: int | None = None
    opset_after: int | None = None
    opset_chosen_by: Literal["", "target", "placement", "option"] = ""
    nodes_changed: dict[str, int] = {}
    weights_not_inputs: int = 0

    constants_that_were_inputs: int = 0
    values: dict[str, list[int]] = {}
    pinned: dict[str, int] = {}
    inlined: Inlined | None = None
    nodes_removed: int = 0
    static: bool | None = None

    nodes: tuple[int, int] | None = None
    bytes: tuple[int, int] | None = None
    guard_on_values: str = ""

    free_dimensions: list[FreeDimension] = []
    fused: dict[str, int] = {}
    frame_nodes: int = 0
    rewritten: dict[str, int] = {}

    engine: str = ""
    casts: int | None = None
    kept_fp32: dict[str, KeepReason] = {}
    kept_by_rule: dict[str, int] = {}
    emulation: str = ""
    trials: list[Trial] = []
    blocks: list[Block] = []
    outputs_in_fp16: dict[str, _Number] = {}
    search_seconds: float = 0.0
    worst_values: list[Worst] = []
    profile: Profile | None = None
    islands: dict[str, str] = {}
    islands_computing: dict[str, str] = {}
    island_recipe: str = ""
    emulation_error: _Number = None

    error_of_all: _Number = None
    error: _Number = None
    kept_weights: dict[str, str] = {}
    kept_bytes: int = 0
    bytes_to_round: int = 0
    keep_recipe: str = ""
    products: int = 0
    tables: int = 0
    convolutions: int = 0
    weight_bytes_before: int = 0
    weight_bytes_after: int = 0


class StepRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one step.

    Attributes:
        model: file name of the model, in the record of a folder of several models.
        outcome: ``undone``: the guard, which checks the result, restored the model.
        nodes_before, nodes_after: number of nodes of all graphs, subgraphs and functions.
        bytes_before, bytes_after: size in bytes of all tensors of the model.
    """

    step: str
    outcome: Literal["changed", "unchanged", "undone"]
    seconds: float
    nodes_before: int
    nodes_after: int
    bytes_before: int
    bytes_after: int
    options: dict[str, Any] = {}
    findings: list[Finding] = []
    facts: StepFacts = msgspec.field(default_factory=StepFacts)
    model: str = ""

    @property
    def title(self) -> str:
        """The name of the step, with its model if there are several."""
        return f"{self.model}: {self.step}" if self.model else self.step
