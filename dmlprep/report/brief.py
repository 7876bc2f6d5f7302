"""The text with ``-q``: one line for a good result, otherwise its problems."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from dmlprep.core.text.sizes import count_text
from dmlprep.directml.placement import Placement
from dmlprep.portable.printable import printable
from dmlprep.record import Check, RunRecord, Verdict
from dmlprep.report.text import show_findings, show_verdicts


def prepared_line(record: RunRecord) -> str:
    """``out/model.onnx: 24 of 24 nodes on DirectML, proved on cpu and dml, worst relative error 0.0012``."""
    placed = record.facts.placement_after
    parts = [] if placed is None else [f"{placed.dml_nodes} of {placed.nodes} nodes on DirectML"]
    # A session that was only loaded has compared nothing; of logits there are feeds and no outputs.
    passed = [one for one in record.verdicts if one.decides and one.outcome == "passed" and (one.outputs or one.feeds)]
    if passed:
        inputs = " with made inputs" if all(one.inputs == "seeded" for one in passed) else ""
        parts.append(f"proved {_checks(passed)}{inputs}")
        errors = [output.max_rel for one in passed for output in one.outputs]
        parts += [f"worst relative error {max(errors):.2g}"] if errors else []
    else:
        parts.append("not proved")
    if not any(one.check.provider == "dml" for one in passed):
        parts.append("no DirectML ran it")
    return f"{printable(record.output)}: {', '.join(parts)}"


def _checks(passed: list[Verdict]) -> str:
    """Return ``on cpu and dml``, or ``prompt, steps and encoder on cpu`` for a language model's folder."""
    providers = {one.check.provider for one in passed}
    if len(providers) > 1 or any(one.check.measure == "parity" for one in passed):
        return f"on {' and '.join(dict.fromkeys(_where(one) for one in passed))}"
    *before, last = dict.fromkeys(one.check.subject for one in passed)
    told = f"{', '.join(before)} and {last}" if before else last
    return f"{told} on {providers.pop()}"


def _where(verdict: Verdict) -> str:
    kept = f" (measured {verdict.measured[:10]}, kept)" if verdict.measured else ""
    names = {Check("parity", device): device for device in ("cpu", "dml")}
    names[Check("parity", "emulation", "storage")] = "fp16 emulation"
    return names.get(verdict.check, str(verdict.check)) + kept


def checked_line(record: RunRecord, placement: Placement | None) -> str:
    """``m.onnx: 31 of 32 nodes on DirectML (ort-1.30), 1 compute node on the CPU, 3 crossings, 2 errors``."""
    parts = []
    if placement is not None:
        parts.append(f"{placement.dml_nodes} of {len(placement.nodes)} nodes on DirectML ({record.target})")
        if placement.compute_on_cpu:
            parts.append(f"{count_text(len(placement.compute_on_cpu), 'compute node')} on the CPU")
        if placement.crossings:
            parts.append(count_text(len(placement.crossings), "crossing"))
    parts += dict.fromkeys(one.code for one in record.all_findings() if one.severity == "error")
    return f"{printable(record.input)}: {', '.join(parts) or record.error or 'nothing is known'}"


def show_briefly(record: RunRecord, console: Console) -> None:
    """Print a record of ``prepare``: one line, or the errors of the model."""
    if record.exit_code == 0:
        console.print(Text(prepared_line(record)))
        return
    show_findings([one for one in record.findings if one.severity == "error"], console)
    for step in record.steps:
        show_findings([one for one in step.findings if one.severity == "error"], console)
    show_verdicts([one for one in record.verdicts if one.decides and one.outcome != "passed"], console)
    console.print(Text(f"{printable(record.input)}: nothing was written"))
