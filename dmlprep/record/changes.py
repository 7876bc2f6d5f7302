"""The changes from one run of ``prepare`` to a later one: settings, numbers, nodes, verdicts and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PureWindowsPath
from typing import Any

import msgspec

from dmlprep.core.errors import InputError
from dmlprep.record.findings import Finding
from dmlprep.record.nodes import NodeTable, numbers
from dmlprep.record.run_record import RunRecord
from dmlprep.record.verdicts import Verdict

_HOW = ("recipe", "target", "bench", "bench_seconds", "fresh", "force")
"""Options that have a row of their own, or no effect on the result."""


class Change(msgspec.Struct, frozen=True):
    """A value in both runs; ``None`` if a run does not have it.

    ``name`` is a field of the record (``version``, ``options.pins``, ``exit_code``) or of ``PlacementFacts``;
    ``files.NAME`` (SHA-256); ``weights`` (bytes); or ``memory`` (bytes of the device at the peak).
    """

    name: str
    before: Any
    after: Any


class VerdictChange(msgspec.Struct, frozen=True):
    """The outcomes of a check (``parity on cpu``), and the largest errors of its outputs, on the tolerance's scale.

    ``None`` if the check was not made; an error also if it compared no outputs.
    """

    check: str
    before: str | None
    after: str | None
    error_before: float | None = None
    error_after: float | None = None


class Changes(msgspec.Struct, frozen=True):
    """The changes from an earlier run to a later one; all fields are empty if there are none.

    Attributes:
        settings: files that were read, version of dmlprep, recipe, target and options.
        numbers: exit code, opset, weights, nodes, placement and memory of the result.
        operators: number of nodes by operator, where it changed.
        to_cpu, to_dml: nodes of both results that moved to the CPU, and to DirectML.
        verdicts: checks with another outcome, or with an error that differs in the first two digits.
        new, gone: findings of only the later run, and of only the earlier one. The same code at the same node is the
            same finding.
    """

    settings: list[Change] = []
    numbers: list[Change] = []
    operators: list[Change] = []
    to_cpu: list[str] = []
    to_dml: list[str] = []
    verdicts: list[VerdictChange] = []
    new: list[Finding] = []
    gone: list[Finding] = []

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)


def changes(before: RunRecord, after: RunRecord) -> Changes:
    """Compare the records of two runs of ``prepare``.

    Raises:
        InputError: a record is of another command.
    """
    for one in (before, after):
        if one.command != "prepare":
            fix = "pass the run.json of prepare"
            raise InputError(f"a record of {one.command}, not of prepare", where=one.input, fix=fix)
    old, new = _table(before), _table(after)
    places = _providers(old), _providers(new)
    moved = {name: now for name, now in places[1].items() if places[0].get(name, now) != now}
    return Changes(
        settings=list(_differing(_settings(before), _settings(after))),
        numbers=list(_differing(_numbers(before), _numbers(after))),
        operators=list(_differing(_operators(old), _operators(new), missing=0)) if old and new else [],
        to_cpu=[name for name, now in moved.items() if now == "c"],
        to_dml=[name for name, now in moved.items() if now == "d"],
        verdicts=list(_verdicts(before, after)),
        new=_only(after, before),
        gone=_only(before, after),
    )


def _differing(before: dict[str, Any], after: dict[str, Any], missing: object = None) -> Iterator[Change]:
    for name in dict.fromkeys([*before, *after]):
        change = Change(name, before.get(name, missing), after.get(name, missing))
        if change.before != change.after:
            yield change


def _settings(record: RunRecord) -> dict[str, Any]:
    options = {f"options.{name}": value for name, value in record.options.items() if name not in _HOW}
    # A record of Windows has its paths.
    files = {f"files.{PureWindowsPath(path).name}": digest for path, digest in record.facts.digests.items()}
    return {**files, **{name: getattr(record, name) for name in ("version", "recipe", "target")}, **options}


def _numbers(record: RunRecord) -> dict[str, Any]:
    facts = record.facts
    values: dict[str, Any] = {"exit_code": record.exit_code}
    if record.opset_after:
        values["opset"] = record.opset_after.get("")
    if record.steps:
        values["weights"] = record.steps[-1].bytes_after
    if (placed := facts.placement_after) is not None:
        names = ("nodes", "dml_nodes", "compute_nodes_on_cpu", "partitions", "crossings", "crossing_bytes")
        values |= {name: getattr(placed, name) for name in names}
        values["memory"] = facts.memory.peak if facts.memory is not None and facts.memory.known else None
    return values


def _table(record: RunRecord) -> NodeTable | None:
    """Return the nodes of the result; ``None`` if a step refused the model."""
    tables = record.facts.nodes
    if tables is None or record.facts.placement_after is None:
        return None
    return tables.after or tables.before


def _operators(table: NodeTable) -> Counter[str]:
    return Counter(table.operators[index] for index in numbers(table.operator))


def _providers(table: NodeTable | None) -> dict[str, str]:
    """Return node -> ``d`` or ``c``; a node in a subgraph has the path of its graph before its name."""
    if table is None:
        return {}
    graphs = [table.graphs[index] for index in numbers(table.graph)] if table.graph else [""] * len(table.names)
    paths = (f"{graph}/{name}" if graph else name for graph, name in zip(graphs, table.names, strict=True))
    return dict(zip(paths, table.providers, strict=True))


def _verdicts(before: RunRecord, after: RunRecord) -> Iterator[VerdictChange]:
    old, new = ({one.check: one for one in record.verdicts} for record in (before, after))
    for check in dict.fromkeys([*old, *new]):
        was, now = old.get(check), new.get(check)
        (outcome_before, error_before), (outcome_after, error_after) = _outcome(was), _outcome(now)
        if outcome_before != outcome_after or _digits(error_before) != _digits(error_after):
            yield VerdictChange(str(check), outcome_before, outcome_after, error_before, error_after)


def _outcome(verdict: Verdict | None) -> tuple[str | None, float | None]:
    if verdict is None:
        return None, None
    return verdict.outcome, max((max(one.max_rel, one.error) for one in verdict.outputs), default=None)


def _digits(error: float | None) -> str:
    return "" if error is None else f"{error:.1e}"


def _only(record: RunRecord, other: RunRecord) -> list[Finding]:
    known = {(one.code, one.node) for one in other.all_findings()}
    own = {(one.code, one.node): one for one in record.all_findings()}
    return [one for key, one in own.items() if key not in known]
