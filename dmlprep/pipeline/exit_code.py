"""Derive the exit code of a run, and its reason, from the verdicts of its checks."""

from __future__ import annotations

from collections.abc import Sequence

from dmlprep.passes.fix_quirks import FixQuirksPass
from dmlprep.pipeline.recipe import Plan
from dmlprep.record import Finding, RunError, RunRecord, Verdict


def judge(record: RunRecord, plan: Plan, faults: Sequence[Finding] = ()) -> None:
    """Set ``exit_code`` and ``error`` of the record, by the worst verdict that keeps the result from being written.

    A check on DirectML that did not run counts only if the recipe requires DirectML. If no verdict counts, and no check
    on DirectML passed, an error that DirectML is known to make also sets them. Otherwise the record does not change.

    Args:
        faults: the errors that DirectML is known to make with the result.
    """
    on_wish = plan.recipe.parity.dml != "require"
    deciding = [v for v in record.verdicts if v.decides and v.outcome != "passed"]
    # A failed verdict says more than one that did not run.
    for verdict in sorted(deciding, key=lambda v: v.exit_code):
        on_dml = verdict.check.provider == "dml"
        if verdict.outcome == "failed":
            # A model that does not run says more than different outputs.
            code = next((f.code for f in verdict.findings if f.severity == "error"), "")
            what, fix = "failed", _HOW_TO_MEND.get(code, "dmlprep bisect finds the first node that differs")
            known = min(_left_quirks(record), key=lambda f: not f.facts["certain"], default=None) if on_dml else None
            if known is not None:
                fix = f"{known.node} is a known fault of DirectML: dmlprep explain {known.facts['quirk_code']}"
        elif verdict.outcome == "not-proven":
            record.exit_code = verdict.exit_code
            record.error = RunError(f"{verdict.check} is not proven by these inputs: {verdict.reason}", code="DP709")
            return
        elif on_dml and on_wish:
            continue
        else:
            code = next((f.code for f in verdict.findings), "")
            what, fix = "was required but did not run" if on_dml else "did not run", _how_to_run(verdict)
        record.exit_code = verdict.exit_code
        record.error = RunError(f"{verdict.check} {what}: {verdict.reason}", fix=fix, code=code)
        return
    if not any(v.check.provider == "dml" and v.outcome == "passed" for v in record.verdicts):
        _refuse_known_faults(record, plan, faults)


def _refuse_known_faults(record: RunRecord, plan: Plan, faults: Sequence[Finding]) -> None:
    """Set exit code 1 and the error if DirectML is known to fail on the result, or to compute it wrongly.

    The record also gets these faults as findings, unless a step has reported them already.

    Called if DirectML has not run the result. Quirks that the user accepted (``skip`` of ``fix-quirks``) do not count.
    """
    step = next((step.pass_.options for step in plan.steps if isinstance(step.pass_, FixQuirksPass)), None)
    accepted = step.skip if step is not None else []
    faults = [f for f in faults if f.facts.get("quirk") not in accepted]
    if not faults:
        return
    ids = list(dict.fromkeys(str(f.facts["quirk"]) for f in faults if "quirk" in f.facts))
    known = [f for f in _left_quirks(record) if f.facts["quirk"] in ids]
    first = (known or faults)[0]
    if not known:
        record.findings += faults
    skip = "skip=[" + ", ".join(f'"{one}"' for one in ids) + "]"
    if not ids:
        fix = first.remedy
    elif step is None:
        fix = f"add the step fix-quirks to the recipe ({skip} there writes the result as it is)"
    else:
        fix = (
            "export the node in another form, or prove the result on DirectML (--require-dml); "
            f"--set 'step.fix-quirks.{skip}' writes it without this check"
        )
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    record.exit_code = 1
    where = f"node {first.node}" if first.node else ""
    record.error = RunError(f"{first.message}{more}", where=where, fix=fix, code=first.code)


def _left_quirks(record: RunRecord) -> list[Finding]:
    """Return the findings about quirks that the step ``fix-quirks`` left as they are."""
    return [f for step in record.steps for f in step.findings if f.code == "DP641"]


_HOW_TO_MEND = {
    "DP407": 'set step.fp16.islands="auto", and step.fp16.feeds to the number of your feeds (default: 2); '
    "or keep the nodes that lose digits in FP32 (step.fp16.keep_operators), or set a wider parity.tolerance",
    "DP713": "remove the last step that changed the model, and report the model's structure",
}

DML_HERE = "dmlprep runtime install (Linux), or run on Windows with a GPU; dmlprep doctor shows what is missing"


def _how_to_run(verdict: Verdict) -> str:
    if verdict.ended == "memory":
        return "use smaller sizes or a machine with more memory, or raise DMLPREP_MEMORY_LIMIT"
    if verdict.ended == "timeout":
        return "raise parity.time_limit (seconds), or use smaller sizes or a less busy machine"
    if verdict.ended:
        return next(f.remedy for f in verdict.findings if f.code == "DP703")
    if verdict.check.provider == "dml":
        return DML_HERE
    if verdict.check.provider == "cpu":
        inputs = "pass real inputs with --feeds (dmlprep feeds makes them), or sizes with --pin"
        return f"{inputs}; --set parity.cpu=false writes the result without this proof"
    return '--set parity.fp16_emulation="off" writes the result without this proof'
