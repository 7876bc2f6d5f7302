"""Findings as SARIF 2.1.0, for code scanning and editors.

Source of the format: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0, sections 3.13 to 3.52.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from dmlprep.quirks import code_row
from dmlprep.record import Finding, RunRecord
from dmlprep.record.documents import to_json
from dmlprep.record.printable import printable

__all__ = ["SCHEMA", "VERSION", "render", "to_object"]

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVEL = {"note": "note", "warning": "warning", "error": "error"}


def _uri(path: str) -> str:
    """A URI of a file: relative as it was given, ``file://`` where it is absolute."""
    given = Path(path)
    try:
        return given.as_uri() if given.is_absolute() else quote(os.fsencode(given.as_posix()))
    except UnicodeEncodeError:  # half a character, which no file of this system has in its name
        return quote(printable(path))


def _message(text: str) -> str:
    """Plain text (section 3.11): printable, and without the form of an embedded link, ``[text](target)``."""
    return printable(text).replace("](", "] (")


def _pascal(title: str) -> str:
    """A rule's name in one word (section 3.49.7)."""
    words = "".join(c if c.isalnum() else " " for c in title).split()
    return "".join(word[:1].upper() + word[1:] for word in words)


def _rules(codes: Iterable[str]) -> list[dict[str, Any]]:
    rules = []
    for code in codes:
        row = code_row(code)
        rule: dict[str, Any] = {
            "id": code,
            "name": _pascal(row.title),
            "shortDescription": {"text": row.title},
            "defaultConfiguration": {"level": _LEVEL[row.severity]},
        }
        if row.remedy:
            rule["help"] = {"text": row.remedy}
        rules.append(rule)
    return rules


def _result(finding: Finding, uri: str, index: dict[str, int], target: str) -> dict[str, Any]:
    text = _message(finding.message + (f". Fix: {finding.remedy}" if finding.remedy else "")) or finding.code
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri}}}
    if finding.node:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.node, "kind": "element"}]
    key = f"{finding.code}\0{finding.node}\0{target}"
    return {
        "ruleId": finding.code,
        "ruleIndex": index[finding.code],
        "level": _LEVEL[finding.severity],
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"dmlprep/v1": hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]},
        "properties": {"target": target, **msgspec.to_builtins(finding.facts)},
    }


def to_object(records: list[RunRecord]) -> dict[str, Any]:
    """A SARIF log with one run for each record (each target)."""
    runs = []
    for record in records:
        found = record.all_findings()
        codes = sorted({f.code for f in found})
        index = {code: i for i, code in enumerate(codes)}
        uri = _uri(record.input)
        runs.append(
            {
                "tool": {
                    "driver": {
                        "name": "dmlprep",
                        "version": record.version,
                        "rules": _rules(codes),
                    }
                },
                "automationDetails": {"id": f"dmlprep/{record.command}/{record.target}/"},
                "artifacts": [{"location": {"uri": uri}}],
                "invocations": [{"executionSuccessful": True, "exitCode": record.exit_code}],
                "results": [_result(f, uri, index, record.target) for f in found],
                "columnKind": "unicodeCodePoints",
            }
        )
    return {"$schema": SCHEMA, "version": VERSION, "runs": runs}


def render(records: list[RunRecord]) -> bytes:
    """The log as indented JSON, UTF-8."""
    return to_json(to_object(records))
