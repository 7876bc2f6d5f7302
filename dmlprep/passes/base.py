"""The base of passes. A pass changes a model's graph in memory; it uses no files, no sessions and no command line.

The pipeline runs a pass as a transaction (``pipeline/transaction.py``): it takes a snapshot of the model, runs the
pass, checks the result, and records it or restores the snapshot.
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
"""A fact about a model that a step promises. In order: the target runs the opset, shapes are fixed, constants are
folded, weights are FP16, dimensions have denotations, weights have few bits."""

Bound = Literal["exact", "rounding", "fp16", "few-bits"]
"""How far a pass may change outputs on the CPU. In order: not at all, as far as FP32 sums in another order (1e-5 of the
largest value), as far as FP16 rounding, as far as weights of few bits."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base class of a pass's options: the fields of the step's table in a recipe. Each field has a default."""


@dataclass(frozen=True)
class OnCpu:
    """A node that does real work and would run on the CPU, not on DirectML.

    ``name``: the node's label; ``operator``: its operator, with the domain if that is not ai.onnx.
    """

    name: str
    operator: str


@dataclass
class Context:
    """The data that a pass gets from the pipeline while it runs, and its reports.

    Attributes:
        target: the target that the model is prepared for.
        findings: the findings of the step; the pass adds to them with ``report``.
        facts: numbers for the step's record, which the pass sets.
        before: a frozen copy of the model before the pass; ``None`` if the pipeline made none.
        after: the frozen form of the changed model, which a pass may set after its last change; it saves time.
        runner: runs models; ``None`` if the pipeline cannot run models.
        choose_opset: returns the opset at which the fewest nodes leave DirectML, if no operator is rewritten; ``None``
            if the pipeline predicts no placement. The arguments are those of ``on_cpu``.
        on_cpu: returns the nodes of a model that would run on the CPU, without the shape arithmetic that ONNX Runtime
            always runs there; ``None`` if the pipeline predicts no placement. The arguments are the model and, if there
            is one, its frozen copy.
        rules: the rules of the later proof.
        progress: called with the share done (0 to 1) and a short text.
    """

    target: Target
    findings: list[Finding] = field(default_factory=list)
    facts: StepFacts = field(default_factory=StepFacts)
    before: Frozen | None = None
    after: Frozen | None = None
    runner: Runner | None = None
    choose_opset: Callable[[Model, Frozen | None], int] | None = None
    on_cpu: Callable[[Model, Frozen | None], list[OnCpu]] | None = None
    rules: ProofRules = field(default_factory=ProofRules)
    progress: Progress = lambda share, text: None

    def report(self, code: str, message: str, *, node: str = "", **facts: Any) -> None:
        """Add a finding to the findings of the step; the arguments are those of ``record.finding``."""
        self.findings.append(finding(code, message, node=node, **facts))


O = TypeVar("O", bound=Options)  # noqa: E741


class Pass(ABC, Generic[O]):
    """Base class of passes. A pass is made with its options, and then run on a model.

    Attributes:
        name: the step's name in recipes.
        summary: one line for help texts.
        options_type: the class of the options.
        gives: facts that are true of a model after the pass.
        bound: how far the pass may change outputs on the CPU.
        keeps_interface: whether inputs and outputs stay the same. If not, a note in the model's metadata describes the
            change.
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
        """Return the facts that are true of a model after this pass: ``gives``, and facts that an option adds."""
        return self.gives

    def keeps_type(self, name: str) -> bool:
        """Return whether the pass leaves the element type of the input or output ``name`` unchanged."""
        return True

    def keeps_input(self, name: str) -> bool:
        """Return whether the graph input ``name`` still exists after this pass."""
        return True

    @abstractmethod
    def run(self, model: Model, context: Context) -> bool:
        """Change ``model`` in place, and return whether anything changed. The pipeline checks the returned value.

        Raises:
            ModelRefused: the pass cannot do its work on this model. The pipeline then restores the model.
        """


AnyPass = Pass[Any]
"""A pass with any options."""
