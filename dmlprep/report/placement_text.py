"""Show the result of ``check`` as text: plain lines, which can be piped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmlprep.core.text.sizes import bytes_text, count_text
from dmlprep.directml.placement import Placement
from dmlprep.directml.placement.placement import PlacedNode
from dmlprep.directml.targets import Target
from dmlprep.portable.shares import percent
from dmlprep.record import CODES, Finding, RunRecord
from dmlprep.record.outlook import Outlook
from dmlprep.record.run_record import Level, brief_line, headline, target_text
from dmlprep.report import opportunities
from dmlprep.report.grouping import FindingGroup, finding_lines, grouped
from dmlprep.report.outlook_text import memory_line

_NAMED = 3
"""The most source modules that are named for a group of nodes."""


_URGENT = 3
"""The most lines of a summary that need the user."""

_COLOUR: dict[Level, str] = {"good": "green", "warn": "yellow", "bad": "red"}


@dataclass(frozen=True)
class Line:
    """A line of text. ``start``, its first words, has a colour on a terminal: a name of click, or ``dim``."""

    start: str
    rest: str = ""
    colour: str = ""


def summary(record: RunRecord) -> tuple[list[Line], Line]:
    """Return the lines that ``check`` shows first, and the last line, which models on the same target share.

    The first lines are the verdict, a line for each check, at most three errors and warnings, and at most
    three opportunities with their commands, after the errors.
    """
    errors, warnings = _needs(record)
    shown = errors[:_URGENT]
    shown += map(Line, opportunities.lines(record.facts.opportunities))
    shown += warnings[: max(0, _URGENT - len(errors))]
    left_out = len(errors) + len(warnings) - _URGENT
    more = f", and {left_out} more to review" if left_out > 0 else ""
    target = target_text(record.target, record.target_reason)
    news = headline(record)
    first = Line(record.input, f": {news.text}", _COLOUR[news.level])
    checks = [
        Line(
            f"{one.check}: {one.outcome}",
            f", {one.reason or one.tolerance}",
            "green" if one.outcome == "passed" else "yellow",
        )
        for one in record.verdicts
    ]
    return [first, *checks, *shown], Line(f"target {target}; details{more}: -v", colour="dim")


def _needs(record: RunRecord) -> tuple[list[Line], list[Line]]:
    """Return a line for each group of errors and of warnings, the refusal of ``prepare`` before the other warnings.

    Warnings about nodes that ``prepare`` moves to DirectML are left out.
    """
    outlook = record.facts.prepare
    moved = set() if outlook is None or outlook.refused else _moved(outlook)
    severe = [f for f in record.all_findings() if f.severity != "note" and _operator(f) not in moved]
    groups = list(grouped(severe))
    refused = []
    if record.facts.prepare_fails:
        refused.append(Line("prepare would fail", f" on this model: {record.facts.prepare_fails}", "yellow"))
    elif outlook is not None and outlook.refused:
        refused.append(Line("prepare would refuse", f" this model: {outlook.refused}", "yellow"))
    errors, warnings = ([_line(group) for group in groups if group.severity == kind] for kind in ("error", "warning"))
    return errors, refused + warnings


def _moved(outlook: Outlook) -> set[str]:
    """Return the operators all of whose compute nodes ``prepare`` moves to DirectML: ``Gelu-20``."""
    fates = [fate for fate in outlook.best.fates if fate.role == "compute"]
    return {fate.op for fate in fates if fate.step} - {fate.op for fate in fates if not fate.step}


def _operator(finding: Finding) -> str:
    return f"{finding.facts.get('op')}-{finding.facts.get('since_version')}"


def _line(group: FindingGroup) -> Line:
    text = group.items[0] if group.items else group.head
    text += f", and {more} more" if (more := len(group.items[1:]) + group.left_out) else ""
    text += f"; fix: {group.remedy}" if group.remedy else ""
    return Line(group.severity, f" {group.code} {text}", "red" if group.severity == "error" else "yellow")


def lines(record: RunRecord, placement: Placement | None, target: Target) -> list[str]:
    """Return the result of ``check`` for one model on one target, as lines of text.

    ``placement``: where each node runs; ``None`` if it is unknown.
    """
    versions = ", ".join(f"{domain or 'ai.onnx'} {v}" for domain, v in sorted(record.opset_before.items()))
    release = (
        f"ONNX Runtime {target.ort_version}, DirectML {target.directml_version}" if target.ort_version else target.title
    )
    text_lines = [brief_line(record), *opportunities.lines(record.facts.opportunities)]
    text_lines.append(f"opset {versions}, IR {record.ir_before}; target {target.name}: {release}")
    text_lines += [f"this target is the default: {record.target_reason}"] if record.target_reason else []
    if placement is not None:
        text_lines += _summary(placement)
        memory = record.facts.memory
        text_lines += [memory_line(memory)] if memory is not None else []
        remedies: dict[tuple[object, ...], str] = {
            (f.facts.get("op"), f.facts.get("since_version"), f.code): f.remedy for f in record.findings
        }
        text_lines += _groups(placement, remedies)
    rest = [f for f in record.findings if not _shown_above(f)]
    if rest:
        text_lines.append("")
    text_lines += finding_lines(rest)
    if record.facts.prepare is not None:
        text_lines += _ahead(record.facts.prepare)
    if record.facts.prepare_fails:
        text_lines += ["", f"prepare would fail on this model: {record.facts.prepare_fails}"]
    for verdict in record.verdicts:
        text_lines += ["", f"{verdict.check}: {verdict.outcome}, {verdict.reason or verdict.tolerance}"]
        text_lines += [f"  by {verdict.device}"] if verdict.device is not None else []
        text_lines += finding_lines(verdict.findings)
    return text_lines


def _ahead(outlook: Outlook) -> list[str]:
    """Return the memory after ``prepare`` with example sizes, or why it would refuse the model; may be empty."""
    if outlook.refused:
        return ["", f"prepare would refuse this model: {outlook.refused}"]
    # without sizes, the text above has the model's own
    if outlook.memory is None or not outlook.memory.known or not outlook.sizes:
        return []
    sizes = ", ".join(f"{name}={size}" for name, size in outlook.sizes.items())
    return ["", f"after prepare with {sizes}: {memory_line(outlook.memory)}"]


def _summary(placement: Placement) -> list[str]:
    total = len(placement.nodes)
    share = f"on DirectML: {placement.dml_nodes} of {total} nodes ({percent(placement.node_share)})"
    if placement.flop_share is not None:
        share += f", {percent(placement.flop_share)} of floating-point operations"
    fused = sum(n.partition is not None for n in placement.nodes)
    count = len(placement.crossings)
    unknown = sum(c.nbytes is None for c in placement.crossings)
    crossing = f"copies between CPU and GPU: {count_text(count, 'tensor')}"
    if unknown < count:
        crossing += f", {bytes_text(placement.crossing_bytes)} a run"
    if unknown:
        crossing += f", {unknown} of unknown size"
    return [share, f"fused: {fused} nodes in {placement.partitions} partitions; {crossing}"]


def _shown_above(finding: Finding) -> bool:
    count_text = finding.code.startswith(("DP50", "DP51")) and "count" in finding.facts
    return finding.code == "DP522" or count_text


def _groups(placement: Placement, remedies: Mapping[tuple[object, ...], str]) -> list[str]:
    away: dict[tuple[str, int, str, str], list[PlacedNode]] = {}
    loose: dict[str, list[PlacedNode]] = {}
    for node in placement.nodes:
        if node.provider != "DmlExecutionProvider":
            away.setdefault((node.op, node.since_version, node.code, node.role), []).append(node)
        elif node.not_fused:
            loose.setdefault(node.not_fused, []).append(node)
    compute, other = [], []
    for (op, since, code, role), nodes in sorted(away.items(), key=lambda item: -len(item[1])):
        if role == "compute":
            compute.append(f"  {len(nodes):>5} x {op}-{since}  {code} {nodes[0].reason}")
            compute += _sources(op, nodes)
            compute.append(f"          {remedies.get((op, since, code)) or CODES[code].remedy}")
    for (op, since, code, role), nodes in away.items():
        if role != "compute" and code != "DP506":
            other.append(f"  {len(nodes):>5} x {op}-{since}  {code} {nodes[0].reason} ({role})")
    if shapes := sum(node.code == "DP506" for nodes in away.values() for node in nodes):
        other.append(f"  {shapes:>5} x shape arithmetic  DP506 {CODES['DP506'].remedy}")
    fused = []
    for code, nodes in sorted(loose.items(), key=lambda item: -len(item[1])):
        noun = "node" if len(nodes) == 1 else "nodes"
        fused.append(f"  {len(nodes):>5} {noun}  {code} {nodes[0].not_fused_reason} (first: {_first(nodes[0])})")
        fused.append(f"          {CODES[code].remedy}")
    titles = {"compute on the CPU:": compute, "on the CPU, no compute:": other, "on DirectML, not fused:": fused}
    return [line for title, texts in titles.items() if texts for line in ("", title, *texts)]


def _sources(op: str, nodes: Sequence[PlacedNode]) -> list[str]:
    """Return lines such as ``Gelu  layers.0.mlp.act  model.py:16``, for the first source modules of the nodes."""
    sources = list(dict.fromkeys(node.source for node in nodes if node.source is not None))
    more = [f"          and {len(sources) - _NAMED} more"] if len(sources) > _NAMED else []
    return [f"          {op}  {source}" for source in sources[:_NAMED]] + more


def _first(node: PlacedNode) -> str:
    return "  ".join(filter(None, (node.name, node.source.beside(node.name) if node.source else "")))


def by_release(path: str, rows: list[tuple[Target, RunRecord, Placement | None]]) -> list[str]:
    """Return the lines of the table of ``--target all``: one for each release of ONNX Runtime.

    The last line names the first release from which on DirectML runs all compute nodes, if there is one.
    ``rows``: target, run record and placement for each release, oldest first.
    """
    table = [
        path,
        f"{'target':<14} {'loads':<6} {'on DirectML':>12} {'compute on CPU':>15} {'partitions':>11} {'copies':>10}",
    ]
    whole: str = ""
    for target, record, placement in rows:
        loads = not any(f.code in ("DP520", "DP521", "DP507") for f in record.findings)
        if placement is None or not loads:
            table.append(f"{target.name:<14} {'yes' if loads else 'no':<6} {'unknown' if loads else '-':>12}")
            whole = ""
            continue
        away = len(placement.compute_on_cpu)
        table.append(
            f"{target.name:<14} {'yes' if loads else 'no':<6} {percent(placement.node_share):>12} {away:>15} "
            f"{placement.partitions:>11} {len(placement.crossings):>10}"
        )
        whole = "" if away else whole or target.name
    return [*table, *([f"all compute runs on DirectML from {whole} on"] if whole else [])]
