"""The most important news of a run, in a sentence, and in the few lines of HTML that a notebook shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from dmlprep.core.text.markup import html_text
from dmlprep.core.text.sizes import bytes_text
from dmlprep.record.check import Check
from dmlprep.record.facts import RunFacts
from dmlprep.record.findings import Finding
from dmlprep.record.nodes import numbers
from dmlprep.record.placement import PlacementFacts

Level = Literal["good", "warn", "bad"]

_NAMED = 3
"""Operators on the CPU that are named."""

_COLOURS = {"good": "#1a7f37", "warn": "#b07400", "bad": "#cf222e"}
_OUTCOMES = {"passed": "good", "failed": "bad"}
_VERDICTS = 20


class Outcome(Protocol):
    """A verdict, as far as a headline tells of it."""

    @property
    def check(self) -> Check: ...
    @property
    def outcome(self) -> str: ...
    @property
    def decides(self) -> bool: ...


class Run(Protocol):
    """A run record, as far as a headline tells of it: ``RunRecord`` shows itself in notebooks by this module."""

    command: str
    exit_code: int
    facts: RunFacts

    @property
    def error(self) -> object: ...
    @property
    def verdicts(self) -> Sequence[Outcome]: ...
    def all_findings(self) -> list[Finding]: ...


@dataclass(frozen=True)
class Headline:
    """The first line of a report.

    Attributes:
        level: ``bad`` the run failed; ``warn`` nodes are on the CPU, a check did not run, or there is a warning;
            ``good`` none of these.
        word: the level for readers who do not see its colour: ``failed``, ``look``, ``good``.
        text: one to three sentences.
    """

    level: Level
    word: str
    text: str


def headline(record: Run) -> Headline:
    """The worst news of a record first."""
    if record.exit_code or record.error:
        return Headline("bad", "failed", f"Exit code {record.exit_code}: {record.error or 'see the findings'}")
    findings = record.all_findings()
    failed = any(v.outcome == "failed" for v in record.verdicts)
    errors = sum(f.severity == "error" for f in findings)
    warnings = sum(f.severity == "warning" for f in findings)
    placed = _placed(record)
    said = [*_away(record, placed), *_proof(record)]
    if errors:
        said.append(f"{_count(errors, 'finding')} of severity error.")
    if not said:
        said.append(f"{record.command} is done.")
    if warnings:
        said.append(f"{_count(warnings, 'warning')} below.")
    not_passed = any(v.outcome != "passed" for v in record.verdicts)
    if errors or any(v.outcome == "failed" and v.decides for v in record.verdicts):
        return Headline("bad", "failed", " ".join(said))
    on_cpu = placed is not None and placed.dml_nodes < placed.nodes
    proved = any(v.check.provider == "dml" and v.outcome == "passed" for v in record.verdicts)
    unproved = record.command == "prepare" and not proved
    idle = record.facts.bench is not None and record.facts.bench.exit_code != 0
    if on_cpu or failed or not_passed or unproved or warnings or idle:
        return Headline("warn", "look", " ".join(said))
    return Headline("good", "good", " ".join(said))


def _placed(record: Run) -> PlacementFacts | None:
    facts = record.facts
    return facts.placement_after or facts.placement or facts.placement_before


def _away(record: Run, placed: PlacementFacts | None) -> list[str]:
    """What runs on the CPU, and what that moves."""
    if placed is None:
        return []
    nodes, on_dml = placed.nodes, placed.dml_nodes
    if on_dml >= nodes:
        return [f"All {nodes:,} nodes go to DirectML." if nodes > 1 else "The node goes to DirectML."] if nodes else []
    verb = "stays" if nodes - on_dml == 1 else "stay"
    text = f"{nodes - on_dml:,} of {_count(nodes, 'node')} {verb} on the CPU{_operators(record.facts)}"
    if crossings := placed.crossings:
        moved = placed.crossing_bytes
        size = f", {bytes_text(moved)}{_unknown(record.facts, crossings)}" if moved else ""
        text += f"; {_count(crossings, 'tensor')} cross{'es' if crossings == 1 else ''} in each run{size}"
    return [f"{text}."]


def _unknown(facts: RunFacts, crossings: int) -> str:
    tables = facts.nodes
    known = (
        sum(size >= 0 for size in numbers((tables.after or tables.before).crossings.nbytes)) if tables else crossings
    )
    return f" and {crossings - known} of unknown size" if known < crossings else ""


def _operators(facts: RunFacts) -> str:
    tables = facts.nodes
    if tables is None:
        return ""
    table = tables.after or tables.before
    names = [table.operators[place] for place in numbers(table.operator)]
    away = Counter(name for name, provider in zip(names, table.providers, strict=True) if provider == "c")
    said = [name if count == 1 else f"{count} {name}" for name, count in away.most_common(_NAMED)]
    more = ["..."] if len(away) > _NAMED else []
    return f" ({', '.join(said + more)})" if said else ""


def _proof(record: Run) -> list[str]:
    if record.command != "prepare":
        return [f"{v.check}: {v.outcome}." for v in record.verdicts if v.outcome != "passed"]
    passed = [str(v.check) for v in record.verdicts if v.outcome == "passed"]
    said = [f"Passed: {', '.join(passed)}."] if passed else ["Nothing was proved."]
    said += [
        f"{v.check}: {v.outcome.replace('-', ' ')}{'' if v.decides else ', for information'}."
        for v in record.verdicts
        if v.outcome != "passed"
    ]
    if not any(v.check.provider == "dml" for v in record.verdicts):
        said.append("Not tried on DirectML.")
    return said


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def notebook_html(run: Run, name: str) -> str:
    """Return a few lines of HTML about a run of the model ``name``; every text is escaped."""
    news = headline(run)
    parts = [
        f"<div><b>dmlprep {html_text(run.command)}</b> <code>{html_text(name)}</code><br>",
        f'<b style="color:{_COLOURS[news.level]}">{news.word}</b> {html_text(news.text)}',
        *_placement_rows(run),
        *(_verdict(one) for one in run.verdicts[:_VERDICTS]),
        "</div>",
    ]
    return "".join(parts)


def _placement_rows(run: Run) -> Iterator[str]:
    before, after = run.facts.placement_before, run.facts.placement_after
    if before is None or after is None:
        return
    yield "<table><tr><th></th><th>on DirectML</th><th>fused partitions</th><th>crossings</th></tr>"
    for key, placed in (("before", before), ("after", after)):
        cells = (f"{placed.dml_nodes} of {placed.nodes}", placed.partitions, placed.crossings)
        yield f"<tr><td>{key}</td>{''.join(f'<td>{html_text(cell)}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _verdict(one: Outcome) -> str:
    colour = _COLOURS[_OUTCOMES.get(one.outcome, "warn")]
    return f'{html_text(str(one.check))}: <b style="color:{colour}">{html_text(one.outcome)}</b><br>'
