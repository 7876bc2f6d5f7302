"""Show findings as SARIF 2.1.0, for code scanning and editors.

Source of the format: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0, sections 3.13 to 3.52.
Further requirements of code scanning: GitHub Docs, "SARIF support for code scanning". Microsoft's validator is a test.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from dmlprep.core._version import __version__
from dmlprep.core.text.documents import to_json
from dmlprep.directml.quirks import code_row
from dmlprep.portable.printable import printable
from dmlprep.record import Finding, RunRecord
from dmlprep.record.fleet import worst
from dmlprep.report.pages import page

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_TOOL = f"pkg:generic/dmlprep@{__version__}"
"""The tool's URI: a package URL, because the project has no web page. The type is ``generic``, for no registry has it.

Source: package-url, purl-spec, PURL-TYPES.
"""

_FULL = 1000
"""The most characters of a description; GitHub accepts 1,024."""

_REGION = {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1}
"""The region of every result: the start of the file. A model has no lines, but code scanning needs one."""


def _uri(path: str) -> str:
    """Return the URI of a file: relative for a relative path, ``file://`` for an absolute one."""
    location = Path(path)
    try:
        return location.as_uri() if location.is_absolute() else quote(os.fsencode(location.as_posix()))
    except UnicodeEncodeError:  # half a character, which no file of this system has in its name
        return quote(printable(path))


def _message(text: str) -> str:
    """Return a text as a plain message (section 3.11): printable, and without embedded links, ``[text](target)``."""
    return printable(text).replace("](", "] (")


def _pascal(title: str) -> str:
    """Return a title as a rule's name, one word in Pascal case (section 3.49.7): ``NoKernelForThisOperator``."""
    words = "".join(c if c.isalnum() else " " for c in title).split()
    return "".join(word.capitalize() for word in words if word.lower() not in ("a", "an", "the"))


def _section(text: str, heading: str) -> str:
    """Return the text of the section ``heading`` of a Markdown page, on one line; empty if there is none."""
    match = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return " ".join(match[1].split()) if match else ""


def _text(text: str) -> dict[str, str]:
    return {"text": _message(text if len(text) <= _FULL else f"{text[:_FULL]} ...")}


def _rule(code: str) -> dict[str, object]:
    row, explained = code_row(code), page(code)
    remedy = _section(explained, "How to fix") or row.remedy or f"dmlprep explain {code}"
    return {
        "id": code,
        "name": _pascal(row.title),
        "shortDescription": {"text": row.title},
        "fullDescription": _text(_section(explained, "What") or row.title),
        "help": {**_text(remedy), "markdown": explained},
        "defaultConfiguration": {"level": row.severity},
    }


def _result(finding: Finding, uri: str, index: dict[str, int], target: str) -> dict[str, object]:
    text = _message(finding.message + (f". Fix: {finding.remedy}" if finding.remedy else "")) or finding.code
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": _REGION}}
    if finding.node:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.node, "kind": "element"}]
    source = finding.source
    if source is not None:
        text = f"{_message(str(source))}: {text}"
        if source.module:
            location.setdefault("logicalLocations", []).append({"fullyQualifiedName": source.module, "kind": "module"})
    key = f"{finding.code}\0{finding.node}\0{target}"
    return {
        "ruleId": finding.code,
        "ruleIndex": index[finding.code],
        "level": finding.severity,
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"dmlprep/v1": hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]},
        "properties": {
            "target": target,
            **({"source": msgspec.to_builtins(source)} if source is not None else {}),
            **msgspec.to_builtins(finding.facts),
        },
    }


def to_object(records: list[RunRecord]) -> dict[str, object]:
    """Return a SARIF log as plain values, with one run for each command and target, for all models together.

    GitHub's code scanning accepts at most 20 runs, and each must have another category.
    """
    of: dict[str, list[RunRecord]] = {}
    for record in records:
        of.setdefault(f"dmlprep/{record.command}/{record.target}/", []).append(record)
    return {"$schema": SCHEMA, "version": VERSION, "runs": [_run(category, group) for category, group in of.items()]}


def _run(category: str, records: list[RunRecord]) -> dict[str, object]:
    codes = sorted({f.code for record in records for f in record.all_findings()})
    index = {code: i for i, code in enumerate(codes)}
    uris = [_uri(record.input) for record in records]
    return {
        "tool": {
            "driver": {
                "name": "dmlprep",
                "version": records[0].version,
                "informationUri": _TOOL,
                "rules": list(map(_rule, codes)),
            }
        },
        "automationDetails": {"id": category},
        "artifacts": [{"location": {"uri": uri}} for uri in dict.fromkeys(uris)],
        "invocations": [{"executionSuccessful": True, "exitCode": worst(record.exit_code for record in records)}],
        "results": [
            _result(item, uri, index, record.target)
            for record, uri in zip(records, uris, strict=True)
            for item in record.all_findings()
        ],
        "columnKind": "unicodeCodePoints",
    }


def render(records: list[RunRecord]) -> bytes:
    """Return the records as a SARIF log: indented JSON in UTF-8."""
    return to_json(to_object(records))
