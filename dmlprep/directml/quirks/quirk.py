"""The declaration of a quirk: an operator in a form that DirectML accepts, but cannot run or computes wrong."""

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

_FIX = "run the fix-quirks pass after the opset pass (the default recipe has both)"
_EXPORT = "dmlprep has no equal form: dmlprep explain, with the code of this finding, shows what helps"


@dataclass(frozen=True, slots=True)
class Match:
    """The reason why a node has a quirk, in one clause that may quote names of the model.

    ``sure`` is False if the quirk depends on an unknown value; the finding is then a warning.
    """

    text: str
    sure: bool = True


@dataclass(frozen=True, kw_only=True)
class Quirk:
    """One quirk of DirectML's kernels, on some releases.

    Attributes:
        id: its name in ``skip`` of the fix-quirks pass and in the case files (``reshape-allowzero``).
        code: finding code; it has a page in ``docs/codes``.
        title: title of the code, a few words; empty if ``record.findings`` has a row for the code.
        ops: keys of the operators that can have it (``Conv``, ``com.microsoft::FastGelu``); empty for any.
        first: oldest affected release (``1.15``) that dmlprep knows.
        last: newest affected release; ``None`` if the newest release has it.
        confidence: how the quirk is known. ``measured``: on the real provider, of the releases in ``measured_on``.
            ``source``: from the provider's source code. ``reported``: by users. ``environment``: measured, but the CPU
            driver may be the cause.
        outcome: the fault on DirectML. With free sizes, ``create fails`` can also happen at the first run.
        measured_on: releases on which it was measured, from ``measured.json`` if it has a row there. Other releases
            between ``first`` and ``last`` are inferred.
        matches: returns a clause that explains why a node has the quirk; ``""`` if it does not; a ``Match`` if that is
            not certain. It sees nodes on any device; only matches on DirectML are reported.
        fused: for a quirk that depends on fused graphs. It returns for each node that ``matches`` found in one graph
            whether the quirk takes effect. The second argument maps ``id(node)`` to the number of the node's fused
            graph, if it is in one.
            The clause of a returned ``Match`` is added to the reason.
        rewrite: replaces the node by an equal form and returns ``""``. Otherwise it returns the reason, and the graph
            computes the same as before. It raises ``ModelRefused`` (DP014) if new constants exceed the model's budget.
            ``None`` if no equal form is known.
        mended_at: the opset from which the operator no longer has the quirk; 0 if there is none. ``auto`` raises models
            to it.
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
        """Its unique name, as in ``measured.json``: the id and the first release, since quirks may share an id."""
        return f"{self.id} from {self.first}"

    @property
    def effect(self) -> str:
        """The outcome for people. A failure is one outcome: free sizes move it from session creation to the run."""
        fails = self.outcome in ("create fails", "run fails")
        return "session creation or the first run fails" if fails else self.outcome

    @property
    def code_row(self) -> Code:
        """Title, severity and remedy of its finding code, if ``record`` has no row for the code."""
        return Code(self.title, self.severity, _FIX if self.rewrite is not None else _EXPORT)

    def concerns(self, release: tuple[int, int]) -> bool:
        """Return whether a release (``(1, 24)``) is affected."""
        return within(release, self.first, self.last)
