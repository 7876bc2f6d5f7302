"""Write JSON and TOML that every reader accepts: without lone surrogates, and safe to show in a terminal."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Literal

import msgspec

from dmlprep.portable.printable import LONGEST_LINE, inert, json_safe, printable, quoted, shortened

_LOST = re.compile("[\0\ud800-\udfff]")


def to_json(data: object, *, order: Literal["sorted"] | None = None, indent: int = 2, measures: bool = True) -> bytes:
    """Return a record, or builtins, as indented JSON in UTF-8 with a final line end.

    Characters that do not print become JSON escapes. Lone surrogates (bytes of a path that are not UTF-8) and zero
    bytes become escaped text. JSON does not allow the former, and readers refuse the latter. NaN becomes ``null``.

    Args:
        order: ``sorted`` sorts the keys.
        measures: the data may have infinities, which JSON lacks: write the largest number instead. Otherwise they
            become ``null``, which is faster.
    """
    try:
        raw = msgspec.json.encode(data, order=order)
        if measures and b"null" in raw:  # msgspec writes null for numbers that are not finite, and for None
            raw = msgspec.json.encode(_finite(msgspec.to_builtins(data, order=order)), order=order)
        whole = b"\\u0000" not in raw
    except UnicodeEncodeError:
        whole = False
    if not whole:
        raw = msgspec.json.encode(_whole(_finite(msgspec.to_builtins(data, order=order))), order=order)
    text = msgspec.json.format(raw, indent=indent)
    plain = text.isascii() and b"\x7f" not in text and b"##" not in text
    return (text if plain else json_safe(text.decode()).encode()) + b"\n"


def toml_comment(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a text, shortened to ``longest`` characters, as a TOML comment: one line with ``# `` before the text."""
    return inert(f"# {shortened(' '.join(printable(text).split()), longest)}")


def to_compact(data: object) -> bytes:
    """Return a record, or builtins, as JSON without white space, for a cache.

    Lone surrogates become escaped text. NaN and infinity become ``null``.
    """
    try:
        return msgspec.json.encode(data)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole(msgspec.to_builtins(data)))


def canonical(data: object) -> bytes:
    """Return builtins or records as bytes for a digest: different data gives different bytes, equal data equal bytes.

    Exceptions: NaN and infinities count as ``None``, and tuples as lists. No code parses these bytes.
    """
    try:
        return msgspec.json.encode(data, order="sorted")
    except UnicodeEncodeError:  # bytes of a path that are not UTF-8: Python's writer has an escape for each
        return json.dumps(msgspec.to_builtins(data), sort_keys=True).encode("ascii")


def toml_string(text: str) -> str:
    """Return a text as a basic TOML string, in quotes.

    Lone surrogates and zero bytes become escaped text; other characters that do not print become TOML escapes.
    """
    written = quoted(json.dumps(_whole(text), ensure_ascii=False))
    return "".join(c if printable(c) == c else f"\\U{ord(c):08x}" for c in written)


def toml_value(value: object) -> str:
    """Return a value as TOML on one line; ``None``, which TOML lacks, becomes ``null``."""
    if isinstance(value, dict):
        rows = ", ".join(f"{toml_key(key)} = {toml_value(v)}" for key, v in value.items())
        return f"{{ {rows} }}" if rows else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return toml_string(value)
    # TOML has its own words for numbers that are not finite.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else json.dumps(value)


def toml_key(key: str) -> str:
    """Return a key as TOML, in quotes if necessary."""
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else toml_string(key)


def _finite(value: object) -> object:
    """Return a copy of builtins in which each infinity is the largest number of its sign."""
    if isinstance(value, float) and math.isinf(value):
        return math.copysign(sys.float_info.max, value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _whole(value: object) -> object:
    r"""Return a copy of builtins in which lone surrogates and zero bytes are escaped text (``\x00``)."""
    if isinstance(value, str):
        return _LOST.sub(lambda match: printable(match.group()), value)
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return list(map(_whole, value)) if isinstance(value, list) else value
