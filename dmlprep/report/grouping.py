"""Group findings for readers: errors first, findings of one code together, and a shared fix only once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dmlprep.portable.printable import printable
from dmlprep.record import CODES, SEVERITIES, Finding

_SHOWN = 8
"""The most findings of a group that get a line; the others are only counted."""

_NAMED = 4
"""The most nodes that are named for one message; the others are only counted."""


@dataclass(frozen=True)
class FindingGroup:
    """Findings of the same severity, code and remedy (fix).

    Attributes:
        head: text after the code on the first line: the common message, or a title if the messages differ.
        items: a line for each finding, if the messages differ.
        left_out: number of findings without such a line.
        remedy: the fix; always empty for notes.
    """

    severity: str
    code: str
    head: str
    items: tuple[str, ...] = ()
    left_out: int = 0
    remedy: str = ""


def grouped(findings: Sequence[Finding]) -> Iterator[FindingGroup]:
    """Yield the findings in groups; the severest come first, otherwise their order stays."""
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
        head = f"{_title(code)}, {len(members)} times:"
        yield FindingGroup(severity, code, head, items, len(members) - len(items), remedy)


def _title(code: str) -> str:
    """Return the title of a code; the code itself if it is unknown, as in records of another version."""
    from dmlprep.directml.quirks import codes

    row = CODES.get(code) or codes().get(code)
    return row.title if row is not None else code


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Return the findings in groups, as lines of text without colours."""
    lines = []
    for group in grouped(findings):
        lines.append(f"{group.severity} {group.code} {group.head}")
        lines += [f"  {item}" for item in group.items]
        lines += [f"  and {group.left_out} more; --format json has all"] if group.left_out else []
        lines += [f"  fix: {group.remedy}"] if group.remedy else []
    return lines


def _item(finding: Finding) -> str:
    """Return the text of one finding in a group: node, module and source line, and message.

    The node is left out if the message names it.
    """
    node, source = printable(finding.node), printable(finding.source.beside(finding.node) if finding.source else "")
    names = filter(None, (node if node not in finding.message else "", source))
    return ": ".join(filter(None, ("  ".join(names), finding.message)))


def _where(findings: list[Finding]) -> str:
    """Return the nodes of findings with the same message: ``Conv_1, Conv_2  layer1.0.conv2  model.py:16 and 6 more: ``.

    Without names of nodes, return how many findings there are; empty for one.
    """
    sources = [(one.node, one.source.beside(one.node) if one.source else "") for one in findings if one.node]
    places = ("  ".join(filter(None, one)) for one in sources)
    names = list(dict.fromkeys(map(printable, places)))
    if not names:
        return f"{len(findings)} times: " if len(findings) > 1 else ""
    named = names if len(names) <= _NAMED else names[: _NAMED - 1]
    rest = len(names) - len(named)
    return ", ".join(named) + (f" and {rest} more: " if rest else ": ")
