"""Read genai_config.json within limits, and find text that onnxruntime-genai reads differently from other programs."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dmlprep.core.errors import InputError
from dmlprep.core.files import Unfit, decode_text, explain, meant, read_given
from dmlprep.record import Finding, finding

_BYTES = 16 << 20
_DEPTH = 32
_DIGITS = 18
"""Largest number of digits of an integer; a longer one becomes a float, as onnxruntime-genai reads all numbers."""

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""Pattern of a string, even without its end, or of a bracket outside strings; the search is linear."""

_SPACE = " \t\r\n"
"""The characters that JSON allows as white space."""

_ESCAPED = re.compile(r"\\u[0-9A-Fa-f]{4}")


class JsonObject(dict[str, Any]):
    """A JSON object; ``twice`` has its duplicate keys. The last value of such a key counts."""

    twice: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """The content of a JSON file.

    Attributes:
        root: the object at the top.
        findings: faults in the text that onnxruntime-genai reads otherwise than JSON defines.
    """

    root: JsonObject
    findings: tuple[Finding, ...]


def read_document(path: Path, *, limit: int = _BYTES) -> Document:
    """Read a JSON file with an object at its top.

    Args:
        limit: largest size of the file in bytes.

    Raises:
        InputError: the file cannot be read, is larger, is not a JSON object, or nests deeper than 32 levels.
    """

    def refuse(what: str, fix: str) -> InputError:
        return InputError(what, where=str(path), fix=fix, code="DP840")

    try:
        data = read_given(path, limit)
        text = decode_text(data)
    except OSError as error:
        what, fix = explain(error, path)
        what = what or f"cannot be read: {error.strerror or error}"
        raise refuse(what, fix or meant(path, "check the path")) from error
    except Unfit as error:
        raise refuse(str(error), error.fix) from error
    if _depth(text) > _DEPTH:
        raise refuse(f"objects and lists are nested more than {_DEPTH} deep", "check that it is the right file")
    try:
        reader = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_whole_number, parse_constant=_no_number)
        root, end = reader.raw_decode(text, len(text) - len(text.lstrip(_SPACE)))
    except json.JSONDecodeError as error:
        raise refuse(f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}", "fix that line") from error
    except (RecursionError, ValueError) as error:
        raise refuse(f"not JSON: {error}", "check that it is the right file") from error
    if not isinstance(root, JsonObject):
        raise refuse("the file is not a JSON object", "check that it is the right file")
    return Document(root, tuple(_text_findings(path, data, text, text[end:])))


def _pairs(pairs: list[tuple[str, object]]) -> JsonObject:
    table = JsonObject(pairs)
    if len(table) != len(pairs):
        earlier: set[str] = set()
        table.twice = tuple(dict.fromkeys(key for key, _ in pairs if key in earlier or earlier.add(key)))  # type: ignore[func-returns-value]
    return table


def _whole_number(text: str) -> int | float:
    """Parse an integer; one of more than 18 digits becomes a float, because Python refuses thousands of digits."""
    return int(text) if len(text) <= _DIGITS else float(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _depth(text: str) -> int:
    """Return the nesting depth of brackets outside strings: Python's JSON reader must not recurse too deep."""
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        mark = text[match.start()]
        depth += (mark in "[{") - (mark in "]}")
        deepest = max(deepest, depth)
    return deepest


def _text_findings(path: Path, data: bytes, text: str, rest: str) -> list[Finding]:
    findings = []
    if data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        findings.append(finding("DP843", f"{path.name} begins with a byte-order mark"))
    if escapes := _ESCAPED.search(re.sub(r"\\\\", "", text)):
        remedy = "write the character itself in UTF-8, or a short escape such as \\n"
        findings.append(finding("DP843", f"{path.name} has the escape {escapes[0]}", remedy=remedy))
    if rest.strip():
        what = f"{path.name} has text after its end, which is ignored"
        findings.append(finding("DP843", what, severity="warning", remedy="remove the text"))
    return findings
