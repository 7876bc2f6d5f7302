"""The base of passes. A pass changes a model's graph in memory; it knows no files, no sessions and no command line.

The pipeline runs a pass as a transaction (``pipeline/transaction.py``): snapshot, run, contract, record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from dmlprep.graph.model import Frozen, Model
from dmlprep.graph.model.runner import Runner
from dmlprep.metrics import ProofRules
from dmlprep.record import Finding, finding
from dmlprep.record.aliases import Progress
from dmlprep.record.steps import StepFacts

if TYPE_CHECKING:
    from dmlprep.directml.targets import Target

Fact = Literal["opset", "static", "simplified", "fp16", "denoted", "few-bits"]
"""A promise of a step: the opset is within the target's, shapes are fixed, constants are folded, weights are FP16,
dimensions have denotations, or weights have few bits."""

Bound = Literal["exact", "rounding", "fp16", "few-bits"]
"""How far the outputs on the CPU may change: not at all, by FP32 reordering (1e-5 of the largest value), by FP16, or by
weights of few bits."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of a pass's options: the fields of its table in a recipe. Each field has a default."""


@dataclass(frozen=True)
class OnCpu:
    """A compute node that runs on the CPU; ``operator`` has its domain where that is not ai.onnx."""

    name: str
    operator: str


@dataclass
class Context:
    """The surroundings of a pass while it runs.

    Attributes:
        facts: numbers for the step's record, filled by the pass.
        before: the model before the pass, frozen; ``None`` where the pipeline did not freeze it.
        runner: runs models; ``None`` where the pipeline has no runner.
        choose_opset: returns the opset at which most of a model's compute runs on DirectML; ``None`` without placement.
        on_cpu: returns the compute nodes of a model that DirectML does not run; ``None`` without placement. Shape
            arithmetic that ONNX Runtime keeps on the CPU is not included. The arguments are the model and, where it was
            frozen, the frozen model.
        rules: the rules of the later proof.
        progress: called with the share done (0 to 1) and a short text.
    """

    target: Target
    findings: list[Finding] = field(default_factory=list)
    facts: StepFacts = field(default_factory=StepFacts)
    before: Frozen | None = None
    runner: Runner | None = None
    choose_opset: Callable[[Model, Frozen | None], int] | None = None
    on_cpu: Callable[[Model, Frozen | None], list[OnCpu]] | None = None
    rules: ProofRules = field(default_factory=ProofRules)
    progress: Progress = lambda share, text: None

    def report(self, code: str, message: str, *, node: str = "", **facts: Any) -> None:
        """Add a finding to the step's record; see ``record.finding``."""
        self.findings.append(finding(code, message, node=node, **facts))


O = TypeVar("O", bound=Options)  # noqa: E741


class Pass(ABC, Generic[O]):
    """One pass.

    Class attributes:
        gives: facts that are true after it.
        bound: how far CPU outputs may change.
        keeps_interface: whether inputs and outputs stay the same. If not, the model's own note describes the change.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options_type: ClassVar[type[Options]]
    gives: ClassVar[frozenset[Fact]] = frozenset()
    bound: ClassVar[Bound] = "exact"
    keeps_interface: ClassVar[bool] = True

    def __init__(self, options: O) -> None:
        self.options = options

    def promises(self) -> frozenset[Fact]:
        """Facts that are true after this pass with these options: ``gives``, and facts that an option adds."""
        return self.gives

    def keeps_type(self, name: str) -> bool:
        """Return whether the input or output ``name`` keeps its element type in this pass. Names never change."""
        return True

    def keeps_input(self, name: str) -> bool:
        """Return whether the graph input ``name`` exists after this pass."""
        return True

    @abstractmethod
    def run(self, model: Model, context: Context) -> bool:
        """Change ``model`` in place, and return whether anything changed. The pipeline checks the answer.

        Raises:
            ModelRefused: the pass cannot do its work on this model. The pipeline then restores the model.
        """


AnyPass = Pass[Any]
"""A pass with any options."""
