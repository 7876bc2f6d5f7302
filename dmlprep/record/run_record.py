"""The record of one run, and its headline. Reports are views of it; ``run.json`` is its JSON form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from dmlprep.core.errors import DmlprepError, InputError
from dmlprep.core.files import Unfit, meant, parse_json, read_text, unreadable
from dmlprep.core.text.documents import to_json
from dmlprep.core.text.markup import html_text
from dmlprep.core.text.sizes import bytes_text
from dmlprep.record.bisected import Bisected
from dmlprep.record.buckets import BucketFacts
from dmlprep.record.findings import Finding
from dmlprep.record.generation import CheckedModelFacts, GenaiFacts, Needs
from dmlprep.record.memory import MemoryEstimate
from dmlprep.record.nodes import NodeTable, NodeTables, numbers
from dmlprep.record.origin import Origin
from dmlprep.record.outlook import Outlook
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.speed import Bench
from dmlprep.record.steps import StepRecord
from dmlprep.record.verdicts import Verdict

FORMAT = 1
"""Version of the JSON form. Raised when a field changes its meaning or goes away."""

Level = Literal["good", "warn", "bad"]

_NAMED = 3
"""Operators on the CPU that are named."""

_COLOURS = {"good": "#1a7f37", "warn": "#b07400", "bad": "#cf222e"}
_OUTCOMES = {"passed": "good", "failed": "bad"}
_VERDICTS = 20


class RunError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of a run: a sentence, the place, the fix, and a finding code; its text is all of them."""

    what: str
    where: str = ""
    fix: str = ""
    code: str = ""

    @classmethod
    def of(cls, error: DmlprepError) -> RunError:
        """Return the error that was raised."""
        return cls(error.what, error.where, error.fix, error.code)

    def __str__(self) -> str:
        return str(DmlprepError(self.what, where=self.where, fix=self.fix, code=self.code))


class RunFacts(msgspec.Struct, omit_defaults=True):
    """The facts of a run. Each command sets those that it knows.

    Attributes:
        digests, files: SHA-256 of all files that were read, by path; all files that the result depends on.
        placement_before, placement_after, placement: before and after the steps of ``prepare``; unchanged (``check``).
        memory: memory of the device for a session.
        best_opset: opset at which most of the model runs on DirectML.
        prepare, prepare_fails: the prediction of ``prepare``, or why it would fail.
        models, needs: the models of ``genai check`` by section of the config, and the memory for the decoder.
    """

    origin: Origin | None = None
    digests: dict[str, str] = {}
    files: list[str] = []
    placement_before: PlacementFacts | None = None
    placement_after: PlacementFacts | None = None
    placement: PlacementFacts | None = None
    memory: MemoryEstimate | None = None
    nodes: NodeTables | None = None
    best_opset: int | None = None
    prepare: Outlook | None = None
    prepare_fails: str = ""
    bucket: BucketFacts | None = None
    bench: Bench | None = None
    bisection: Bisected | None = None
    genai: GenaiFacts | None = None
    models: dict[str, CheckedModelFacts] = {}
    needs: Needs | None = None


class RunRecord(msgspec.Struct):
    """One run of ``prepare``, ``check`` or ``compare``.

    Attributes:
        input_sha256: digest of the model file. ``facts.digests`` has those of all files that were read, by path.
        output: path of the prepared model, empty if no file was written.
        opset_before: opset by domain.
        options: the user's options of ``prepare``, by the names of ``PrepareOptions``.
    """

    command: str
    input: str
    format: int = FORMAT
    version: str = ""
    target: str = ""
    recipe: str = ""
    input_sha256: str = ""
    output: str = ""
    output_sha256: str = ""
    exit_code: int = 0
    seconds: float = 0.0
    opset_before: dict[str, int] = {}
    opset_after: dict[str, int] = {}
    ir_before: int = 0
    ir_after: int = 0
    steps: list[StepRecord] = []
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    facts: RunFacts = msgspec.field(default_factory=RunFacts)
    options: dict[str, Any] = {}
    error: RunError | None = None

    def all_findings(self) -> list[Finding]:
        """Return the findings of the run, its steps and its verdicts, in that order."""
        sources: list[RunRecord | StepRecord | Verdict] = [self, *self.steps, *self.verdicts]
        return [finding for source in sources for finding in source.findings]

    def _repr_html_(self) -> str:
        """Return HTML for notebooks."""
        return _notebook_html(self)

    def to_json(self) -> bytes:
        """The record as indented JSON, UTF-8."""
        return to_json(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> RunRecord:
        """Read a record; ``msgspec.ValidationError`` if it is not one, or of a newer dmlprep."""
        try:
            record = parse_json(data, cls)
        except Unfit as error:
            raise msgspec.ValidationError(str(error)) from error
        if record.format > FORMAT:
            raise msgspec.ValidationError(f"format {record.format} is of a newer dmlprep; this one reads {FORMAT}")
        return record

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Read a record from a file, or from the ``run.json`` of a folder; ``InputError`` if it is not one."""
        path = path / "run.json" if path.is_dir() else path
        try:
            return cls.from_json(read_text(path))
        except OSError as error:
            raise unreadable(error, path, fix=meant(path, "check the path")) from error
        except Unfit as error:
            raise InputError(f"not a run record: {error}", where=str(path), fix=error.fix) from error
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            fix = "pass the run.json that prepare wrote"
            raise InputError(f"not a run record: {error}", where=str(path), fix=fix) from error


@dataclass(frozen=True)
class Headline:
    """The first line of a report: one to three sentences.

    Attributes:
        level: ``bad`` the run failed; ``warn`` nodes are on the CPU, a check did not run, or there is a warning;
            ``good`` none of these.
        word: the level for readers who do not see its colour: ``failed``, ``look``, ``good``.
    """

    level: Level
    word: str
    text: str


def headline(record: RunRecord) -> Headline:
    """Return the headline of a record, the worst news first."""
    if record.exit_code or record.error:
        return Headline("bad", "failed", f"Exit code {record.exit_code}: {record.error or 'see the findings'}")
    findings = record.all_findings()
    errors = sum(f.severity == "error" for f in findings)
    warnings = sum(f.severity == "warning" for f in findings)
    placed = record.facts.placement_after or record.facts.placement or record.facts.placement_before
    sentences = [*_away(record, placed), *_proof(record)]
    if errors:
        sentences.append(f"{_count(errors, 'finding')} of severity error.")
    text = " ".join(sentences) or f"{record.command} is done."
    if warnings:
        text += f" {_count(warnings, 'warning')} below."
    if errors or any(v.outcome == "failed" and v.decides for v in record.verdicts):
        return Headline("bad", "failed", text)
    not_passed = any(v.outcome != "passed" for v in record.verdicts)
    on_cpu = placed is not None and placed.dml_nodes < placed.nodes
    proved = any(v.check.provider == "dml" and v.outcome == "passed" for v in record.verdicts)
    unproved = record.command == "prepare" and not proved
    idle = record.facts.bench is not None and record.facts.bench.exit_code != 0
    if on_cpu or not_passed or unproved or warnings or idle:
        return Headline("warn", "look", text)
    return Headline("good", "good", text)


def _away(record: RunRecord, placed: PlacementFacts | None) -> list[str]:
    """Return a sentence about the nodes on the CPU and the tensors that are copied."""
    if placed is None:
        return []
    nodes, on_dml = placed.nodes, placed.dml_nodes
    if on_dml >= nodes:
        return [f"All {nodes:,} nodes go to DirectML." if nodes > 1 else "The node goes to DirectML."] if nodes else []
    verb = "stays" if nodes - on_dml == 1 else "stay"
    tables = record.facts.nodes
    table = (tables.after or tables.before) if tables else None
    text = f"{nodes - on_dml:,} of {_count(nodes, 'node')} {verb} on the CPU{_operators(table)}"
    if crossings := placed.crossings:
        known = sum(size >= 0 for size in numbers(table.crossings.nbytes)) if table else crossings
        unknown = f" and {crossings - known} of unknown size" if known < crossings else ""
        size = f", {bytes_text(placed.crossing_bytes)}{unknown}" if placed.crossing_bytes else ""
        text += f"; {_count(crossings, 'tensor')} cross{'es' if crossings == 1 else ''} in each run{size}"
    return [f"{text}."]


def _operators(table: NodeTable | None) -> str:
    """Return the operators on the CPU in brackets, the most frequent first; empty where no table has them."""
    if table is None:
        return ""
    names = [table.operators[place] for place in numbers(table.operator)]
    away = Counter(name for name, provider in zip(names, table.providers, strict=True) if provider == "c")
    parts = [name if count == 1 else f"{count} {name}" for name, count in away.most_common(_NAMED)]
    more = ["..."] if len(away) > _NAMED else []
    return f" ({', '.join(parts + more)})" if parts else ""


def _proof(record: RunRecord) -> list[str]:
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


def _notebook_html(run: RunRecord) -> str:
    """Return a few lines of HTML about a run; every text is escaped."""
    news = headline(run)
    parts = [
        f"<div><b>dmlprep {html_text(run.command)}</b> <code>{html_text(run.input)}</code><br>",
        f'<b style="color:{_COLOURS[news.level]}">{news.word}</b> {html_text(news.text)}',
        *_placement_rows(run),
        *(_verdict(one) for one in run.verdicts[:_VERDICTS]),
        "</div>",
    ]
    return "".join(parts)


def _placement_rows(run: RunRecord) -> Iterator[str]:
    before, after = run.facts.placement_before, run.facts.placement_after
    if before is None or after is None:
        return
    yield "<table><tr><th></th><th>on DirectML</th><th>fused partitions</th><th>crossings</th></tr>"
    for key, placed in (("before", before), ("after", after)):
        cells = (f"{placed.dml_nodes} of {placed.nodes}", placed.partitions, placed.crossings)
        yield f"<tr><td>{key}</td>{''.join(f'<td>{html_text(cell)}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _verdict(one: Verdict) -> str:
    colour = _COLOURS[_OUTCOMES.get(one.outcome, "warn")]
    return f'{html_text(str(one.check))}: <b style="color:{colour}">{html_text(one.outcome)}</b><br>'
