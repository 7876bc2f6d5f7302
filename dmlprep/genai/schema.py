"""Check a genai_config.json for values that onnxruntime-genai's reader refuses.

``schema.json`` lists an object's keys and the values of each: ``string``, ``int`` (32 bits), ``number``, ``bool``,
``{name}`` (an object of that name), ``[...]`` (a list of them), with ``|`` between alternatives. ``*`` matches all
other keys. Bounds (``int 1..16``, ``number >0..1``) or the valid words (``string A/B``) may follow.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from dmlprep.portable.printable import printable, shortened
from dmlprep.record import Finding, finding

_MOST = 200
"""Largest number of findings on one file: a file of another kind has thousands of unknown keys."""

_SHOWN = 60
_INT32 = 1 << 31
_PLAIN = r"-?[\d.]{1,20}|true|false"

_WORDS = {"string": "a string in quotes", "int": "a whole number", "number": "a number", "bool": "true or false"}


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``schema.json``: for each kind of object its keys, and the valid values of each key as text.

    Attributes:
        version: release of onnxruntime-genai that it describes.
    """

    version: str
    source: list[str]
    objects: dict[str, dict[str, str]]


class _Kind(NamedTuple):
    """One valid kind of value for a key.

    Attributes:
        name: ``string``, ``int``, ``number``, ``bool``, or the name of a kind of object.
        listed: True for a list of such values.
        table: True for an object.
        low, high: limits of a number, both included.
        above: True if ``low`` itself is not valid.
        words: the valid words of a string; empty for any.
    """

    name: str
    listed: bool
    table: bool
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    words: tuple[str, ...] = ()


@cache
def schema() -> Schema:
    """Return the table of dmlprep's ``schema.json``, which is read once."""
    return msgspec.json.decode(Path(__file__).with_name("schema.json").read_bytes(), type=Schema)


@cache
def _kind(text: str) -> _Kind:
    listed = text.startswith("[")
    head, _, rest = text.strip("[]").partition(" ")
    if head.startswith("{"):
        return _Kind(head.strip("{}"), listed, table=True)
    bounds = re.fullmatch(r"(>?)(-?[\d.]+)\.\.(-?[\d.]*)", rest)
    if bounds:
        low, high = float(bounds[2]), float(bounds[3] or math.inf)
        return _Kind(head, listed, table=False, low=low, high=high, above=bool(bounds[1]))
    return _Kind(head, listed, table=False, words=tuple(rest.split("/")) if rest else ())


def validate(root: Mapping[str, object]) -> list[Finding]:
    """Return findings on values in a config that onnxruntime-genai refuses or reads differently, in document order.

    They are at most 200, and one that says that there are more.
    """
    findings = list(islice(_table(root, "root", ""), _MOST + 1))
    if len(findings) > _MOST:
        findings[_MOST] = finding("DP841", f"more than {_MOST} problems: is this a genai_config.json?", node="more")
    return findings


def printed(text: str) -> str:
    """Return a text from a config in the form for messages: printable, and at most 60 characters."""
    return shortened(printable(text), _SHOWN)


def place_text(place: str, key: str) -> str:
    """Return a place and a key (``model.decoder``, ``head_size``) joined to one printable place."""
    return f"{place}.{printed(key)}" if place else printed(key)


def _table(table: Mapping[str, object], name: str, place: str) -> Iterator[Finding]:
    keys = schema().objects[name]
    for key in getattr(table, "twice", ()):
        where = place_text(place, key)
        yield finding("DP844", f"{where} is duplicated; the last one counts", node=where)
    for key, value in table.items():
        where = place_text(place, key)
        if name == "providers" and key == "device_filtering_options":
            text = f"{where} is next to dml, so onnxruntime-genai reads it as the name of a provider"
            remedy = "write it inside the object of dml (the example on its page is wrong)"
            yield finding("DP856", text, node=where, remedy=remedy)
            continue
        type_text = keys.get(key) or keys.get("*")
        if type_text is None:
            yield _unknown(key, value, name, keys, where)
        else:
            yield from _value(value, type_text, where)


def _unknown(key: str, value: object, name: str, keys: Mapping[str, str], where: str) -> Finding:
    version = schema().version
    if name == "root" and not isinstance(value, Mapping | list):
        text = f"{where} is not read by onnxruntime-genai {version}"
        return finding("DP841", text, node=where, severity="warning", remedy="remove it")
    near = _nearest(key, [one for one in keys if one != "*"])
    elsewhere = [one for one in sorted(schema().objects) if key in schema().objects[one] and one != name]
    if near:
        remedy = f"did you mean {near!r}?"
    elif key.isidentifier() and elsewhere:
        remedy = f"it belongs in: {', '.join(elsewhere)}"
    else:
        remedy = f"remove it; known here: {shortened(', '.join(sorted(k for k in keys if k != '*')), 400)}"
    text = f"{where} is unknown to onnxruntime-genai {version}"
    return finding("DP841", text, node=where, remedy=remedy, nearest=near)


def _nearest(key: str, known: list[str]) -> str:
    """Return the known key that the user probably meant by an unknown one; empty if none is similar."""
    bare = re.sub(r"[^a-z0-9]", "", key.lower())
    close = [one for one in known if one.replace("_", "") == bare] or get_close_matches(key[:_SHOWN], known, 1, 0.7)
    return close[0] if close else ""


def _value(value: object, type_text: str, where: str) -> Iterator[Finding]:
    kinds = tuple(map(_kind, type_text.split("|")))
    for kind in kinds:
        if kind.listed and isinstance(value, list):
            for number, item in enumerate(value):
                yield from _item(item, kind, f"{where}[{number}]")
            return
    for kind in kinds:
        fits = isinstance(value, Mapping) if kind.table else _fits(value, kind.name)
        if not kind.listed and fits:
            yield from _item(value, kind, where)
            return
    if where.endswith("hardware_vendor_id") and isinstance(value, str):
        yield _wrong(where, f"needs a number, but has {_shown(value)}", "write 4318 for NVIDIA, 4098 AMD, 32902 Intel")
        return
    wants = " or ".join(dict.fromkeys(_wanted(kind) for kind in kinds))
    yield _wrong(where, f"needs {wants}, but has {_shown(value)}", _remedy(value, kinds))


def _item(value: object, kind: _Kind, where: str) -> Iterator[Finding]:
    if kind.table:
        if isinstance(value, Mapping):
            yield from _table(value, kind.name, where)
        else:
            yield _wrong(where, f"needs an object, but has {_shown(value)}", "")
    elif not _fits(value, kind.name):
        text = f"needs {_wanted(kind._replace(listed=False))}, but has {_shown(value)}"
        yield _wrong(where, text, _remedy(value, (kind,)))
    elif kind.words and isinstance(value, str) and value.lower() not in (word.lower() for word in kind.words):
        near = get_close_matches(value[:_SHOWN], kind.words, 1, 0.5)
        remedy = f"did you mean {near[0]!r}?" if near else ""
        yield _wrong(where, f"is {_shown(value)}, but must be one of {', '.join(kind.words)}", remedy)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _within(value, kind, where)


def _within(value: float, kind: _Kind, where: str) -> Iterator[Finding]:
    if not math.isfinite(value) or (kind.name == "int" and not -_INT32 <= value < _INT32):
        yield _wrong(where, f"is {_shown(value)}, which exceeds 32 bits", "")
    elif value < kind.low or value > kind.high or (kind.above and value == kind.low):
        low = f"more than {kind.low:g}" if kind.above else f"at least {kind.low:g}"
        bounds = low if math.isinf(kind.high) else f"{low} and at most {kind.high:g}"
        yield _wrong(where, f"is {_shown(value)}, but must be {bounds}", "")


def _fits(value: object, name: str) -> bool:
    if name == "string":
        return isinstance(value, str)
    if name == "bool":
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # A number that is not finite fits here, because the message about its bounds is better.
    return name == "number" or not math.isfinite(value) or value == int(value)


def _wrong(where: str, text: str, remedy: str) -> Finding:
    return finding("DP842", f"{where} {text}", node=where, remedy=remedy or None)


def _wanted(kind: _Kind) -> str:
    one = "an object" if kind.table else _WORDS[kind.name]
    return f"a list of {one.removeprefix('a ').removeprefix('an ')}s" if kind.listed else one


def _remedy(value: object, kinds: tuple[_Kind, ...]) -> str:
    names = {kind.name for kind in kinds}
    if "string" in names and isinstance(value, int | float):
        return f'write "{int(value) if isinstance(value, bool) else value}"'[:_SHOWN]
    plain = isinstance(value, str) and names & {"int", "number", "bool"}
    return f"write {value}, without quotes" if plain and re.fullmatch(_PLAIN, str(value)) else ""


def _shown(value: object) -> str:
    if isinstance(value, Mapping | list):
        return "an object" if isinstance(value, Mapping) else "a list"
    return f'"{printed(value)}"' if isinstance(value, str) else shortened(json.dumps(value), _SHOWN)
