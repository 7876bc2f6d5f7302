"""Findings for a reader: errors first, those of one code together, and a remedy that several share only once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dmlprep.portable.printable import printable
from dmlprep.record import CODES, SEVERITIES, Finding

_SHOWN = 8
"""Most findings of one code that are shown; the others are counted."""

_NAMED = 4
"""Nodes that are named if more have the same message."""


@dataclass(frozen=True)
class FindingGroup:
    """Findings of one severity, code and remedy: ``head`` follows the code on the first line.

    ``items``: a line for each finding, if they differ; ``left_out`` more are not shown. A note has no remedy.
    """

    severity: str
    code: str
    head: str
    items: tuple[str, ...] = ()
    left_out: int = 0
    remedy: str = ""


def grouped(findings: Sequence[Finding]) -> Iterator[FindingGroup]:
    """Return the groups, the severest first, otherwise in the order of the findings."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in sorted(findings, key=lambda f: SEVERITIES.index(f.severity)):
        remedy = "" if finding.severity == "note" else finding.remedy
        groups.setdefault((finding.severity, finding.code, remedy), []).append(finding)
    for (severity, code, remedy), members in groups.items():
        messages = list(dict.fromkeys(one.message for one in members))
        if len(messages) == 1:
            yield FindingGroup(severity, code, _where(members) + messages[0], remedy=remedy)
            continue
        shown = members if len(members) <= _SHOWN else members[: _SHOWN - 1]
        items = tuple(_item(one) for one in shown)
        head = f"{CODES[code].title if code in CODES else code}, {len(members)} times:"
        yield FindingGroup(severity, code, head, items, len(members) - len(items), remedy)


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Return the groups as lines of a terminal."""
    lines = []
    for group in grouped(findings):
        lines.append(f"{group.severity} {group.code} {group.head}")
        lines += [f"  {item}" for item in group.items]
        lines += [f"  and {group.left_out} more; --format json has all"] if group.left_out else []
        lines += [f"  fix: {group.remedy}"] if group.remedy else []
    return lines


def _item(finding: Finding) -> str:
    """Return the message after the node, if it does not name it, and the node's module and source line."""
    node, source = printable(finding.node), printable(finding.source.beside(finding.node) if finding.source else "")
    names = filter(None, (node if node not in finding.message else "", source))
    return ": ".join(filter(None, ("  ".join(names), finding.message)))


def _where(findings: list[Finding]) -> str:
    """Return the nodes of a group: ``Conv_1, Conv_2  layer1.0.conv2  model.py:16 and 6 more: ``."""
    sources = [(one.node, one.source.beside(one.node) if one.source else "") for one in findings if one.node]
    places = ("  ".join(filter(None, one)) for one in sources)
    names = list(dict.fromkeys(map(printable, places)))
    if not names:
        return f"{len(findings)} times: " if len(findings) > 1 else ""
    named = names if len(names) <= _NAMED else names[: _NAMED - 1]
    rest = len(names) - len(named)
    return ", ".join(named) + (f" and {rest} more: " if rest else ": ")
