"""Show the changes from an earlier run of ``prepare`` to a later one, as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from dmlprep.core.text.sizes import bytes_text
from dmlprep.record.changes import Change, Changes, VerdictChange
from dmlprep.report.grouping import finding_lines

_NAMES = {
    "version": "dmlprep",
    "exit_code": "exit code",
    "dml_nodes": "nodes on DirectML",
    "compute_nodes_on_cpu": "compute nodes on the CPU",
    "partitions": "fused graphs",
    "crossings": "copies between CPU and GPU",
    "crossing_bytes": "bytes of these copies",
    "memory": "memory of the device",
}
_BYTES = ("weights", "crossing_bytes", "memory")

_SHA = 12
"""Characters of a digest that are shown."""

_NAMED = 5
"""Most nodes of a list that are named."""


def change_lines(changes: Changes, since: str) -> list[str]:
    """Return the changes as lines of text; ``since`` is the path of the earlier record."""
    if not changes:
        return [f"nothing changed since {since}"]
    return [f"changes since {since}:", *(f"  {line}" for line in _lines(changes))]


def _lines(changes: Changes) -> Iterator[str]:
    for one in (*changes.settings, *changes.numbers):
        yield f"{_label(one.name)}: {_arrow(one)}"
    if changes.operators:
        yield "operators: " + ", ".join(f"{one.name} {_arrow(one)}" for one in changes.operators)
    for names, where in ((changes.to_cpu, "the CPU"), (changes.to_dml, "DirectML")):
        if names:
            yield f"now on {where}: {_some(names)}"
    yield from map(_verdict, changes.verdicts)
    for findings, word in ((changes.new, "new"), (changes.gone, "gone")):
        yield from (line if line.startswith(" ") else f"{word}: {line}" for line in finding_lines(findings))


def _label(name: str) -> str:
    kind, _, rest = name.partition(".")
    return f"{rest} (SHA-256)" if kind == "files" else rest if kind == "options" else _NAMES.get(name, name)


def _arrow(change: Change) -> str:
    before, after = (_value(change.name, value) for value in (change.before, change.after))
    return f"{before} -> {after}" if before != after else f"{change.before} -> {change.after}"


def _value(name: str, value: object) -> str:
    if value is None or value == "":
        return "none"
    if name in _BYTES and isinstance(value, int):
        return bytes_text(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:_SHA] if name.startswith("files.") else text


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _verdict(change: VerdictChange) -> str:
    before, after = (
        f"{outcome or 'none'}{'' if error is None else f' (worst error {error:.2g})'}"
        for outcome, error in ((change.before, change.error_before), (change.after, change.error_after))
    )
    return f"{change.check}: {before} -> {after}"
