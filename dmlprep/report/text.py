"""Show a run record as text: one line, a summary, or everything, in colour on a terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from dmlprep.core.text.sizes import bytes_text, count_text
from dmlprep.portable.printable import printable
from dmlprep.portable.shares import percent
from dmlprep.record import Finding, RunError, RunRecord, StepRecord, Verdict
from dmlprep.record.bisected import Bisected
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.run_record import Level, brief_line, headline, target_text
from dmlprep.report import opportunities
from dmlprep.report.console import PlainConsole
from dmlprep.report.grouping import FindingGroup, grouped
from dmlprep.report.outlook_text import memory_line
from dmlprep.report.speed import show_bench
from dmlprep.report.tables import show_table

_COLOUR = {"error": "red", "warning": "yellow", "note": "cyan"}
_OUTCOME = {"passed": "green", "failed": "red", "not-proven": "yellow", "not-run": "yellow"}
_LEVEL: dict[Level, str] = {"good": "green", "warn": "yellow", "bad": "red"}
_WORST = 5

_URGENT = 3
"""The most groups of errors and warnings in a summary."""

PIPED = 120
"""The width of a line in characters if the output is not a terminal."""


def render_text(record: RunRecord) -> str:
    """Return the whole record as plain text, as ``dmlprep report`` writes it into a file."""
    written = io.StringIO()
    show_record(record, PlainConsole(file=written, width=PIPED, color_system=None, soft_wrap=True))
    return written.getvalue()


def _show_steps(steps: list[StepRecord], console: Console) -> None:
    rows = []
    for step in steps:
        nodes = _change(str(step.nodes_before), str(step.nodes_after))
        size = _change(bytes_text(step.bytes_before), bytes_text(step.bytes_after))
        rows.append((step.title, step.outcome, f"{step.seconds:.2f}", nodes, size, str(len(step.findings) or "")))
    show_table(console, ("step", "outcome", "seconds", "nodes", "weights", "findings"), rows, left_aligned=("outcome",))


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def show_findings(findings: list[Finding], console: Console) -> None:
    """Print findings in groups, errors first; at most 8 lines for each group."""
    for group in grouped(findings):
        _show_group(group, console)


def _show_group(group: FindingGroup, console: Console, most: int | None = None) -> None:
    """Print a group of findings, at most ``most`` of its items (``None``: all), and its fix."""
    line = Text(f"{group.severity} ", style=_COLOUR[group.severity])
    line.append(group.code, style="bold")
    line.append(f" {group.head}", style="default")
    console.print(line)
    shown = group.items[:most]
    for item in shown:
        console.print(Text(f"  {item}"))
    if left_out := group.left_out + len(group.items) - len(shown):
        console.print(Text(f"  and {left_out} more in the record", style="dim"))
    if group.remedy:
        console.print(Text(f"  fix: {group.remedy}", style="dim"))


def show_verdicts(verdicts: list[Verdict], console: Console, *, brief: bool = False) -> None:
    """Print a line for each verdict, then its device, its prediction and the outputs that failed.

    ``brief``: only the line of each verdict.
    """
    for verdict in verdicts:
        line = Text(f"{verdict.check}: ")
        line.append(verdict.outcome, style=f"bold {_OUTCOME[verdict.outcome]}")
        if verdict.on_made_inputs:
            line.append(" with synthetic inputs")
        if not verdict.decides:
            line.append(", for information")
        if verdict.outcome != "passed":
            line.append(f", {verdict.reason}")
        if verdict.outputs:
            worst = max(verdict.outputs, key=lambda o: o.max_rel)
            error = f"worst relative error {worst.max_rel:.2g} at {worst.output}"
            line.append(f" ({error}, {count_text(verdict.feeds, 'feed')}, tolerance {verdict.tolerance})")
            # the reason of a failure has the first note, and its findings the others
            shown = verdict.outputs if verdict.outcome == "passed" else []
            for note in dict.fromkeys(o.note for o in shown if o.note and (o.share_equal < 1 or o.error)):
                line.append(f"; {note}")
        console.print(line)
        if verdict.measured:
            console.print(Text(f"  measured {verdict.measured}, from the cache; --fresh measures again", style="dim"))
        if brief:
            continue
        if verdict.device is not None:
            console.print(Text(f"  by {verdict.device}", style="dim"))
        if verdict.prediction:
            console.print(Text(f"  {verdict.prediction}", style="dim"))
        failed = [one for one in verdict.outputs if not one.passed] if verdict.outcome == "failed" else []
        for output in failed:
            distances = f"max abs {output.max_abs:.3g}, relative {output.max_rel:.3g}, cosine {output.cosine:.6f}"
            console.print(Text(f"  {output.output}: {distances}, non-finite {output.non_finite}"))


def show_summary(record: RunRecord, console: Console) -> None:
    """Print the headline, at most three opportunities, three groups of errors and warnings, times, and the output."""
    _show_headline(record, console)
    _show_opportunities(record, console, opportunities.SHOWN)
    _show_urgent(record, console, ("error", "warning"))
    if record.facts.bench is not None:
        show_bench(record.facts.bench, console, verbose=False)
    _show_bucket(record, console)
    _show_output(record, console)
    target = f"target {target_text(record.target, record.target_reason)}; " if record.target else ""
    console.print(Text(f"{target}details: -v, or the report (--html FILE)", style="dim"))


def show_briefly(record: RunRecord, console: Console) -> None:
    """Print the result of the run in one line; after a failure also the errors, and the checks that did not pass."""
    console.print(Text(brief_line(record)))
    if record.exit_code:
        _show_urgent(record, console, ("error",))
        show_verdicts([one for one in record.verdicts if one.decides and one.outcome != "passed"], console)
        _show_output(record, console)


def _show_urgent(record: RunRecord, console: Console, severities: tuple[str, ...]) -> None:
    """Print the fix of the error that ended the run, and the first three groups of findings of these severities.

    Findings with the code of that error are left out.
    """
    error = record.error or RunError("")
    if error.fix:
        console.print(Text(f"  fix: {printable(error.fix)}", style="dim"))
    groups = list(
        grouped([one for one in record.all_findings() if one.severity in severities and one.code != error.code])
    )
    for group in groups[:_URGENT]:
        _show_group(group, console, most=1)
    if len(groups) > _URGENT:
        console.print(Text(f"and {len(groups) - _URGENT} more kinds of findings", style="dim"))


def _show_headline(record: RunRecord, console: Console) -> None:
    news = headline(record)
    start, colon, rest = printable(news.text).partition(": ")
    style = f"bold {_LEVEL[news.level]}"
    console.print(Text.assemble((start, style), f"{colon}{rest}") if colon else Text(start, style=style))


def _show_opportunities(record: RunRecord, console: Console, most: int) -> None:
    for line in opportunities.lines(record.facts.opportunities, most):
        console.print(Text(line))


def _show_bucket(record: RunRecord, console: Console) -> None:
    if (bucket := record.facts.bucket) is not None and bucket.data:
        shared = f", {bytes_text(bucket.shared_bytes)} of them shared" if bucket.shared_bytes else ""
        console.print(Text(printable(f"bucket {bucket.name}: weights of {bytes_text(bucket.data_bytes)}{shared}")))


def _show_output(record: RunRecord, console: Console) -> None:
    if record.output or record.command == "prepare":
        text = f"wrote {printable(record.output)}" if record.output else "nothing was written"
        console.print(Text(text, style="bold"))


def show_record(record: RunRecord, console: Console) -> None:
    """Print the whole record: headline, steps, placement, memory, findings, verdicts, and the path of the result."""
    _show_headline(record, console)
    console.print()
    if record.steps:
        _show_steps(record.steps, console)
    if record.facts.bisection is not None:
        _show_bisected(record.facts.bisection, console)
    versions = (record.opset_before, record.opset_after)
    if all(versions):
        opsets, irs = " -> ".join(str(v.get("", "?")) for v in versions), f"{record.ir_before} -> {record.ir_after}"
        console.print()
        console.print(Text(f"opset {opsets}, IR {irs}, target {target_text(record.target, record.target_reason)}"))
    facts = record.facts
    if facts.placement_before is not None and facts.placement_after is not None:
        show_placement(facts.placement_before, facts.placement_after, console)
    if facts.memory is not None:
        console.print(Text(memory_line(facts.memory)))
    show_half(record, console)
    unsettled = [one for one in record.verdicts if one.outcome in ("not-run", "not-proven")]
    reasons = [one for verdict in unsettled for one in verdict.findings]
    findings = [one for one in record.all_findings() if one not in reasons]  # the verdict's own line has the reason
    if findings:
        console.print()
        show_findings(findings, console)
    if record.verdicts:
        console.print()
        show_verdicts(record.verdicts, console)
    if facts.bench is not None:
        console.print()
        show_bench(facts.bench, console)
    if facts.opportunities:
        console.print()
        _show_opportunities(record, console, len(facts.opportunities))
    console.print()
    _show_bucket(record, console)
    _show_output(record, console)


def show_half(record: RunRecord, console: Console) -> None:
    """Print a few lines for each FP16 step of a run; the HTML report has all facts."""
    from dmlprep.report.fp16 import half_steps

    for half in half_steps(record):
        step, rules = half.record, ", ".join(f"{k.rule} {len(k.nodes)}" for k in half.kept_nodes)
        console.print()
        text = f"{step.title}: {bytes_text(step.bytes_before)} -> {bytes_text(step.bytes_after)}"
        nodes = f"{half.kept_count} nodes in FP32{f' ({rules})' if rules else ''}"
        console.print(Text(f"{text}, {half.facts.casts} casts left, {nodes}"))
        if len(half.trials) > 1:
            trials = f"{len(half.trials)} trials in {half.facts.search_seconds:.0f} s"
            first = f"error {half.trials[0][1]:.2g} with nothing in FP32"
            console.print(Text(f"  island search: {trials}, {len(half.blocks)} blocks in FP16 by themselves, {first}"))
        for block, error in half.blocks[:_WORST]:
            console.print(Text(f"    {block}: error {error:.2g}"))
        for worst in half.worst[:_WORST]:
            peak = f"peak {worst.peak:.3g}{', beyond FP16' if worst.overflows else ''}"
            console.print(Text(f"  {worst.value}: {peak}, {percent(worst.small)} below the normal range"))


def show_placement(before: PlacementFacts, after: PlacementFacts, console: Console) -> None:
    """Print a table of the nodes and operations on DirectML, partitions and copies, before and after."""
    rows = [
        (
            name,
            f"{placed.dml_nodes} of {placed.nodes} nodes",
            "unknown" if placed.flop_share is None else percent(placed.flop_share),
            str(placed.partitions),
            str(placed.crossings),
        )
        for name, placed in (("before", before), ("after", after))
    ]
    show_table(console, ("", "on DirectML", "of operations", "fused partitions", "CPU-GPU copies"), rows)


def _show_bisected(bisection: Bisected, console: Console) -> None:
    """Print the result of a bisection: both models, its settings, the compared values, and the files it wrote."""
    console.print(Text(printable(f"{bisection.candidate} compared with {bisection.reference}"), style="bold"))
    for name, outcome, text in bisection.settings:
        console.print(Text(printable(f"  {name}: {outcome}, {text}" if text else f"  {name}: {outcome}")))
    if bisection.errors:
        beyond = sum(error is None or error > bisection.bound for error in bisection.errors)
        values = f"{len(bisection.errors)} values of {bisection.total_nodes} nodes compared"
        console.print(Text(f"  {values}, {beyond} beyond {bisection.bound:g}"))
    for path in bisection.files:
        console.print(Text(printable(f"  wrote {path}")))
