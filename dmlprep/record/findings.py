"""Findings: observations of a step or a check about a model. Each has a stable code, with a page in ``docs/codes``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from dmlprep.record.source import Source

Severity = Literal["note", "warning", "error"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""All severities, the worst first, as views list them."""


class Code(NamedTuple):
    """A finding code: a title of a few words, with its default severity and remedy."""

    title: str
    severity: Severity
    remedy: str = ""


CODES = msgspec.json.decode(Path(__file__).with_name("codes.json").read_bytes(), type=dict[str, Code])
"""All finding codes except those of quirks (faults of DirectML), which ``dmlprep.directml.quirks.codes()`` returns
with them.

No code is reused for another meaning. Hundreds: 0 the model file, 1 opset, 2 dimensions, 3 simplify, 4 precision, 5
placement, 6 quirks, 7 parity, 8 runtime, packages and folders of genai, 9 recipe.
"""

_QUIRK = re.compile(r"DP6\d\d")
"""Codes that quirks declare. This module cannot import them, because their package is above this one."""

Fact = str | int | float | bool | None | list[Any]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One observation about a model; ``message`` is a sentence, ``facts`` are the numbers behind it.

    Attributes:
        code: stable code, a key of ``CODES`` or declared by a quirk.
        severity: ``error`` fails the model, ``warning`` needs a review, ``note`` is information.
        node: the node (or value) concerned, if any.
        remedy: how to fix it; empty if no fix is shown. ``finding`` uses the remedy of the code by default.
        source: module and source line of the node, if the exporter wrote them.
    """

    code: str
    severity: Severity
    message: str
    node: str = ""
    facts: dict[str, Fact] = {}
    remedy: str = ""
    source: Source | None = None

    def __post_init__(self) -> None:
        if self.code not in CODES and not _QUIRK.fullmatch(self.code):
            raise ValueError(f"unknown finding code {self.code}")


def finding(
    code: str,
    message: str,
    *,
    node: str = "",
    severity: Severity | None = None,
    remedy: str | None = None,
    source: Source | None = None,
    **facts: Fact,
) -> Finding:
    """Return a new finding; by default, severity and remedy are those of its code.

    ``facts`` are the numbers behind the message.

    Raises:
        KeyError: the code is not in ``CODES``.
    """
    row = CODES[code]
    return Finding(
        code=code,
        severity=severity or row.severity,
        message=message,
        node=node,
        facts=facts,
        remedy=row.remedy if remedy is None else remedy,
        source=source,
    )
