"""The record of one run, and its verdict in a sentence. Reports are views of it; ``run.json`` is its JSON form."""

from __future__ import annotations

import math
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
from dmlprep.core.text.sizes import bytes_text, count_text
from dmlprep.portable.printable import printable
from dmlprep.portable.shares import percent
from dmlprep.record.bisected import Bisected
from dmlprep.record.buckets import BucketFacts
from dmlprep.record.findings import Finding
from dmlprep.record.generation import CheckedModelFacts, GenaiFacts, Needs
from dmlprep.record.memory import MemoryEstimate
from dmlprep.record.nodes import NodeTable, NodeTables, numbers
from dmlprep.record.opportunities import Opportunity
from dmlprep.record.origin import Origin
from dmlprep.record.outlook import Outlook
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.speed import Bench
from dmlprep.record.steps import StepRecord
from dmlprep.record.verdicts import Verdict

FORMAT = 1
"""Version of the JSON form. It increases if a field changes its meaning or is removed."""

Level = Literal["good", "warn", "bad"]

WORDS: dict[Level, str] = {"bad": "failed", "warn": "review", "good": "good"}
"""Words for the levels, for readers who do not see colours."""

_NAMED = 3
"""Largest number of operators on the CPU, of codes, and of findings in a notebook that are shown."""

_SAME = 0.05
"""Share of the weights' size: a smaller change is not mentioned."""

_PREPARE = ("prepare", "genai prepare")

_COLOURS = {"good": "#1a7f37", "warn": "#b07400", "bad": "#cf222e"}
_OUTCOMES = {"passed": "good", "failed": "bad"}
_VERDICTS = 20


class RunError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of a run: a sentence, the place, the fix, and a finding code. ``str`` joins all of them."""

    what: str
    where: str = ""
    fix: str = ""
    code: str = ""

    @classmethod
    def of(cls, error: DmlprepError) -> RunError:
        """Return the record of an exception."""
        return cls(error.what, error.where, error.fix, error.code)

    def __str__(self) -> str:
        return str(DmlprepError(self.what, where=self.where, fix=self.fix, code=self.code))


class RunFacts(msgspec.Struct, omit_defaults=True):
    """The facts of a run. Each command sets those that it knows.

    Attributes:
        digests: SHA-256 of all files that were read, by path.
        files: paths of all files that the result depends on.
        placement_before, placement_after: placement of the nodes before and after the steps of ``prepare``.
        placement: placement of an unchanged model (``check``).
        memory: device memory of a session.
        best_opset: opset at which most of the model runs on DirectML.
        prepare, prepare_fails: the predicted result of ``prepare``, or why it would fail.
        opportunities: changes that would still improve the model, by gain.
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
    opportunities: list[Opportunity] = []
    bucket: BucketFacts | None = None
    bench: Bench | None = None
    bisection: Bisected | None = None
    genai: GenaiFacts | None = None
    models: dict[str, CheckedModelFacts] = {}
    needs: Needs | None = None


class RunRecord(msgspec.Struct):
    """The record of one run of a command on a model, such as ``prepare``, ``check`` or ``compare``.

    Attributes:
        target_reason: why ``target`` is the default, as a clause; empty if the user, a file or a recipe chose it.
        input_sha256: digest of the model file. ``facts.digests`` has those of all files that were read, by path.
        output: path of the prepared model, or of the folder of ``genai prepare``; empty if no file was written.
        opset_before, opset_after: opset versions by domain.
        ir_before, ir_after: IR versions.
        options: the user's options of ``prepare``, by the names of ``PrepareOptions``.
    """

    command: str
    input: str
    format: int = FORMAT
    version: str = ""
    target: str = ""
    target_reason: str = ""
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
        """Return HTML for notebooks, which call this method."""
        return _notebook_html(self)

    def to_json(self) -> bytes:
        """Return the record with its headline as indented JSON in UTF-8."""
        return to_json(self.document())

    def document(self) -> RunRecord:
        """Return a copy of the record with its headline, as it is written.

        Readers ignore this field and compute the headline again.
        """
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return _Document(**fields | {"headline": headline(self)})

    @classmethod
    def from_json(cls, data: bytes | str) -> RunRecord:
        """Decode a record from JSON.

        Raises:
            msgspec.ValidationError: it is not a record, or is one of a newer dmlprep.
        """
        try:
            record = parse_json(data, cls)
        except Unfit as error:
            raise msgspec.ValidationError(str(error)) from error
        if record.format > FORMAT:
            raise msgspec.ValidationError(f"format {record.format} is from a newer dmlprep; this one reads {FORMAT}")
        return record

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Read a record from a file, or from the ``run.json`` of a folder.

        Raises:
            InputError: the file cannot be read, or is not a record.
        """
        path = path / "run.json" if path.is_dir() else path
        try:
            return cls.from_json(read_text(path))
        except OSError as error:
            raise unreadable(error, path, fix=meant(path, "check the path")) from error
        except Unfit as error:
            fix = "pass the run.json that prepare wrote" if path.suffix == ".onnx" else error.fix
            raise InputError(f"not a run record: {error}", where=str(path), fix=fix) from error
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            fix = "pass the run.json that prepare wrote"
            raise InputError(f"not a run record: {error}", where=str(path), fix=fix) from error


def record_beside(model: Path) -> Path | None:
    """Return the path of the run record that ``prepare`` wrote next to this model, ``None`` if there is none."""
    named = model.with_suffix(".run.json")
    if named.is_file():
        return named
    beside = model.with_name("run.json")
    return beside if model.name == "model.onnx" and beside.is_file() else None


class _Document(RunRecord):
    headline: Headline | None = None


@dataclass(frozen=True)
class Headline:
    """The first line of a report: ``ready: 84 of 84 nodes on DirectML (was 78 of 79), half the size``.

    Attributes:
        level: ``bad``: the exit code is not 0, or there is an error, a finding of severity ``error``, or a failed check
            that decides. ``warn``: compute nodes are on the CPU, or tensors are copied in each run. The level is also
            ``warn`` if a check did not pass, ``prepare`` did not prove its result on DirectML, or there is a warning.
            Of times, it is ``warn`` if ``bench`` doubts them, or ``prepare --bench`` could not time a model.
            ``good``: none of these.
    """

    level: Level
    text: str

    @property
    def word(self) -> str:
        """The level in a word: ``failed``, ``review`` or ``good``."""
        return WORDS[self.level]


def headline(record: RunRecord) -> Headline:
    """Compute the headline of a record: its level, and one line with the most important facts."""
    not_run = "not measured" if record.command == "bench" else "not proved"
    failed = f"{not_run if record.exit_code == 3 else 'failed'} (exit code {record.exit_code}): "
    if (error := record.error) is not None:
        where = f"{error.where}: " if error.where not in ("", record.input) else ""
        code = f" [{error.code}]" if error.code else ""
        return Headline("bad", f"{failed}{where}{error.what}{code}")
    findings = record.all_findings()
    errors, warnings = ([one for one in findings if one.severity == level] for level in ("error", "warning"))
    placed = record.facts.placement_after or record.facts.placement or record.facts.placement_before
    parts = [*_placed(record, placed), *_changes(record), *_proof(record), *_counted(errors), *_counted(warnings)]
    parts += bench.sentences() if (bench := record.facts.bench) is not None else []
    text = f"{failed if record.exit_code else _start(record)}{', '.join(parts) or f'{record.command} is done'}"
    if record.exit_code or errors or any(one.outcome == "failed" and one.decides for one in record.verdicts):
        return Headline("bad", text)
    not_passed = any(one.outcome != "passed" for one in record.verdicts)
    on_cpu = placed is not None and bool(placed.compute_nodes_on_cpu or placed.crossings)
    unproved = record.command in _PREPARE and not _on_directml(record)
    idle = bench is not None and bool(bench.doubts if record.command == "bench" else bench.exit_code)
    return Headline("warn" if on_cpu or not_passed or unproved or warnings or idle else "good", text)


def target_text(target: str, reason: str) -> str:
    """Return a target with the reason why it is the default, if it is: ``ort-1.30 (... is installed)``."""
    return f"{target} ({reason})" if reason else target


def brief_line(record: RunRecord) -> str:
    """Return the output (or input) path and the headline of a record as one line.

    Example: ``out/model.onnx: ready: 24 of 24 nodes on DirectML, half the size, worst error 0.12 %``.
    """
    return f"{printable(record.output or record.input)}: {printable(headline(record).text)}"


def _on_directml(record: RunRecord) -> bool:
    return any(one.check.provider == "dml" and one.outcome == "passed" for one in record.verdicts)


def _proved(record: RunRecord) -> list[Verdict]:
    """Return the verdicts that decide, passed, and compared outputs.

    A session that was only loaded has compared none.
    """
    return [one for one in record.verdicts if one.decides and one.outcome == "passed" and (one.outputs or one.feeds)]


def _start(record: RunRecord) -> str:
    """Return the first words of the headline of ``prepare``, such as ``ready: ``; empty for other commands."""
    if record.command not in _PREPARE:
        return ""
    if _on_directml(record):
        return "ready: "
    if not _proved(record):
        return "written, not proved: "
    tried = any(one.check.provider == "dml" for one in record.verdicts)
    return f"proved on the CPU, not {'' if tried else 'tried '}on DirectML: "


def _placed(record: RunRecord, placed: PlacementFacts | None) -> Iterator[str]:
    """Yield parts of the headline: nodes on DirectML, operators on the CPU, copies, and fused graphs."""
    if placed is None and record.command == "check" and not record.exit_code:
        yield f"{record.target} loads the model; its kernels are unknown"
    if placed is None or not placed.nodes:
        return
    before, target = record.facts.placement_before, record.target if record.command == "check" else ""
    details = [target] if target else []
    if before is not None and (before.dml_nodes, before.nodes) != (placed.dml_nodes, placed.nodes):
        details.append(f"was {before.dml_nodes:,} of {before.nodes:,}")
    nodes = f"{placed.dml_nodes:,} of {placed.nodes:,} node{'' if placed.nodes == 1 else 's'} on DirectML"
    yield f"{nodes} ({', '.join(details)})" if details else nodes
    tables = record.facts.nodes
    table = (tables.after or tables.before) if tables else None
    if away := placed.nodes - placed.dml_nodes:
        yield f"{away:,} on the CPU{_operators(table)}"
    if copies := placed.crossings:
        known = sum(size >= 0 for size in numbers(table.crossings.nbytes)) if table else copies
        sizes = [bytes_text(placed.crossing_bytes)] if placed.crossing_bytes else []
        sizes += [f"{copies - known} of unknown size"] if 0 < known < copies else []
        size = f" ({' and '.join(sizes)})" if sizes else ""
        noun = "copy" if copies == 1 else "copies"
        yield f"{copies:,} {noun} between CPU and GPU in each run{size}"
    if placed.partitions:
        yield count_text(placed.partitions, "fused graph")


def _operators(table: NodeTable | None) -> str:
    """Return the compute operators on the CPU in brackets, the most frequent first; empty without a table."""
    if table is None:
        return ""
    names = [table.operators[place] for place in numbers(table.operator)]
    columns = zip(names, table.providers, table.roles, strict=True)
    away = Counter(name for name, provider, role in columns if (provider, role) == ("c", "c"))
    parts = [name if count == 1 else f"{count} {name}" for name, count in away.most_common(_NAMED)]
    return f" ({', '.join(parts + ['...'] * (len(away) > _NAMED)) or 'no compute'})"


def _changes(record: RunRecord) -> Iterator[str]:
    """Yield a part of the headline: the size of the weights compared with the original's, if it changed clearly."""
    if record.command != "prepare" or not record.steps:
        return
    before, after = record.steps[0].bytes_before, record.steps[-1].bytes_after
    share = after / before if before else 1.0
    if abs(share - 1) > _SAME:
        yield "half the size" if abs(share - 0.5) <= _SAME else f"{percent(share, 0)} of the size"


def _proof(record: RunRecord) -> Iterator[str]:
    """Yield parts of the headline: the largest error of the checks that passed, and the outcomes of the others."""
    passed = _proved(record)
    errors = [output.max_rel for one in passed for output in one.outputs]
    if errors:
        inputs = " with synthetic inputs" if all(one.inputs == "seeded" for one in passed) else ""
        digits = -math.floor(math.log10(most)) - 1 if 0 < (most := max(errors)) < 1 else 0
        yield f"worst error {percent(most, max(digits, 0))}{inputs}"
    if subjects := list(dict.fromkeys(one.check.subject for one in passed if one.check.measure != "parity")):
        yield f"{' and '.join(subjects)} proved"
    for one in record.verdicts:
        if one.outcome != "passed":
            yield f"{one.check}: {one.outcome.replace('-', ' ')}{'' if one.decides else ', for information'}"


def _counted(findings: list[Finding]) -> Iterator[str]:
    """Yield a part of the headline: the number of findings of one severity, with their codes; no part for 0."""
    if findings:
        codes = list(dict.fromkeys(one.code for one in findings))
        more = ", ..." if len(codes) > _NAMED else ""
        yield f"{count_text(len(findings), findings[0].severity)} ({', '.join(codes[:_NAMED])}{more})"


def _notebook_html(run: RunRecord) -> str:
    """Return a few lines of HTML about a run; every text is escaped."""
    news = headline(run)
    urgent = sorted((one for one in run.all_findings() if one.severity != "note"), key=lambda one: one.severity)
    parts = [
        f"<div><b>dmlprep {html_text(run.command)}</b> <code>{html_text(run.input)}</code><br>",
        f'<b style="color:{_COLOURS[news.level]}">{news.word}</b> {html_text(news.text)}',
        *_placement_rows(run),
        *(f"{html_text(one.severity)} {html_text(one.code)} {html_text(one.message)}<br>" for one in urgent[:_NAMED]),
        *(_verdict(one) for one in run.verdicts[:_VERDICTS]),
        "</div>",
    ]
    return "".join(parts)


def _placement_rows(run: RunRecord) -> Iterator[str]:
    before, after = run.facts.placement_before, run.facts.placement_after
    if before is None or after is None:
        return
    yield "<table><tr><th></th><th>on DirectML</th><th>fused partitions</th><th>CPU-GPU copies</th></tr>"
    for key, placed in (("before", before), ("after", after)):
        cells = (f"{placed.dml_nodes} of {placed.nodes}", placed.partitions, placed.crossings)
        yield f"<tr><td>{key}</td>{''.join(f'<td>{html_text(cell)}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _verdict(one: Verdict) -> str:
    colour = _COLOURS[_OUTCOMES.get(one.outcome, "warn")]
    return f'{html_text(str(one.check))}: <b style="color:{colour}">{html_text(one.outcome)}</b><br>'
