"""Findings: what a step or a check noticed, each with a stable code that has a page in ``docs/codes``."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from dmlprep.record.codes import CODES, Code

__all__ = ["CODES", "SEVERITIES", "Code", "Finding", "Severity", "finding"]

Severity = Literal["note", "warning", "error"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""The worst first, as views list them."""

_QUIRK = re.compile(r"DP6\d\d")
"""Codes that quirks declare, floors above this one."""

Fact = str | int | float | bool | None | list[Any]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing noticed about a model.

    Attributes:
        code: stable code, a key of ``CODES`` or declared by a quirk.
        severity: ``error`` fails the model, ``warning`` needs a review, ``note`` is information.
        message: one sentence with this model's names and numbers.
        node: the node (or value) concerned, if any.
        facts: the numbers behind the sentence.
        remedy: how to fix it; empty: the code's general remedy.
    """

    code: str
    severity: Severity
    message: str
    node: str = ""
    facts: dict[str, Fact] = {}
    remedy: str = ""

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
    **facts: Fact,
) -> Finding:
    """Make a finding with the severity and the remedy that its code has by default."""
    row = CODES[code]
    return Finding(
        code=code,
        severity=severity or row.severity,
        message=message,
        node=node,
        facts=facts,
        remedy=row.remedy if remedy is None else remedy,
    )
