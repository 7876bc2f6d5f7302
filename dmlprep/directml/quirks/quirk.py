"""What a quirk is: a form of an operator that DirectML accepts and then fails on, or computes wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dmlprep.directml.targets.releases import within
from dmlprep.record import Code, Severity

if TYPE_CHECKING:
    from dmlprep.directml.quirks.editing import Edit
    from dmlprep.directml.targets.facts import NodeFacts

MEASURED = "measured on onnxruntime-directml 1.24.4 with DirectML 1.15.4"
ORT_SOURCE = "https://github.com/microsoft/onnxruntime/tree/main/"
DML_PROVIDER = f"{ORT_SOURCE}onnxruntime/core/providers/dml/DmlExecutionProvider/src/"
DML_OPERATORS = f"{DML_PROVIDER}Operators/DmlOperator"
DIRECTML_API = "https://learn.microsoft.com/windows/win32/api/directml/"

_FIX = "run the fix-quirks pass (it is in every built-in recipe)"
_EXPORT = "export the model in another form (see the page of the code)"


@dataclass(frozen=True, slots=True)
class Match:
    """The reason why a quirk concerns a node, in one clause that may quote names of the model.

    A reason is not sure, and the finding a warning, where the quirk depends on a value that is not known.
    """

    text: str
    sure: bool = True


@dataclass(frozen=True, kw_only=True)
class Quirk:
    """One quirk of DirectML's kernels, on some releases.

    Attributes:
        id: its name, as ``skip`` of the fix-quirks pass and the case files name it (``reshape-allowzero``).
        code: finding code; it has a page in ``docs/codes``.
        title: of the code, a few words; empty where the code has its row in ``record.findings``.
        ops: operator keys that it concerns (``Conv``, ``com.microsoft::FastGelu``); empty for any.
        first: oldest release concerned (``1.15``), of those that dmlprep knows.
        last: newest release concerned, ``None`` while it lasts.
        confidence: ``measured`` on the real provider, of ``measured_on``; ``source``: read in the provider's source;
            ``reported`` by users; ``environment``: measured, but the CPU driver may be the cause.
        measured_on: releases on which it was seen, from ``measured.json`` where it stands there. Others between
            ``first`` and ``last`` are inferred.
        matches: says in one clause what makes a node a quirk; ``""`` where it is not one; a ``Match`` where that is not
            certain. It gets only nodes that run on DirectML.
        fused: where the quirk shows in fused graphs only: whether it does, for each of the nodes of one graph that
            ``matches`` takes, by the number of the fused graph that each node of the graph is in (by ``id(node)``). A
            ``Match`` in its answer is added to the clause.
        rewrite: replaces the node by an equal form and returns ``""``. Where it cannot, it returns why, and the graph
            computes what it did before. ``None`` where no equal form is known.
        mended_at: the opset from which the operator has no such quirk; 0 where none does. ``auto`` raises models to it.
    """

    id: str
    code: str
    title: str = ""
    severity: Severity = "error"
    ops: tuple[str, ...]
    outcome: Literal["create fails", "run fails", "crash", "wrong numbers", "empty output", "runs on the CPU"]
    first: str = "1.15"
    last: str | None = None
    confidence: Literal["measured", "source", "reported", "environment"] = "measured"
    measured_on: tuple[str, ...] = ()
    sources: tuple[str, ...] = (MEASURED,)
    matches: Callable[[NodeFacts], str | Match]
    fused: Callable[[Sequence[NodeFacts], Mapping[int, int]], Sequence[bool | Match]] | None = None
    rewrite: Callable[[NodeFacts, Edit], str] | None = None
    mended_at: int = 0

    @property
    def key(self) -> str:
        """Its name in ``measured.json``: some ids stand once for each span of releases."""
        return f"{self.id} from {self.first}"

    @property
    def code_row(self) -> Code:
        """The row of its finding code."""
        return Code(self.title, self.severity, _FIX if self.rewrite is not None else _EXPORT)

    def concerns(self, release: tuple[int, int]) -> bool:
        """Whether a release (``(1, 24)``) is among those concerned."""
        return within(release, self.first, self.last)
