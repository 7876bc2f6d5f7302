"""A bisection as a run record, which reports show."""

from __future__ import annotations

import math

from dmlprep.core._version import __version__
from dmlprep.parity.bisection.finding import Bisection, named
from dmlprep.record import Check, RunError, RunRecord, Verdict, finding
from dmlprep.record.bisected import Bisected
from dmlprep.record.facts import RunFacts
from dmlprep.record.origin import origin


def bisect_record(found: Bisection, *, command_line: str = "") -> RunRecord:
    """What was found, as a record: one verdict, and DP706 where a node was found.

    Args:
        command_line: what the user typed.
    """
    said = Bisected(
        reference=found.reference,
        candidate=found.candidate,
        kind=found.kind,
        nodes=found.nodes,
        op_types=found.op_types,
        values=[one.value for one in found.along],
        places=[one.place for one in found.along],
        errors=[one.error if math.isfinite(one.error) else None for one in found.along],
        total_nodes=found.total_nodes,
        bound=found.bound,
        hidden=found.hidden,
        settings=[(one.name, one.verdict.outcome, one.text) for one in found.settings],
        files=[str(path) for path in found.files],
        runs=found.runs,
    )
    error, findings = RunError(found.reason) if found.outcome == "not-run" else None, []
    if found.outcome == "found":
        error = RunError(f"the models part at {named(found)}")
        findings = [finding("DP706", found.reason, node=found.nodes[0] if found.nodes else "")]
    outcome = {"agree": "passed", "found": "failed", "not-run": "not-run"}[found.outcome]
    return RunRecord(
        command="bisect",
        input=found.candidate,
        version=__version__,
        exit_code=found.exit_code,
        seconds=found.seconds,
        verdicts=[
            Verdict(
                check=Check("agreement"),
                outcome=outcome,  # type: ignore[arg-type]
                reason="" if found.outcome == "agree" else found.reason,
                device=found.device,
                tolerance=found.tolerance,
                feeds=int(found.outcome != "not-run"),
                seconds=found.seconds,
                outputs=found.values,
            )
        ],
        findings=findings,
        facts=RunFacts(bisection=said, origin=origin(command_line)),
        error=error,
    )
