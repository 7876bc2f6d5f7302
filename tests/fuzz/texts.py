"""Mutations of recipes (TOML) and records (JSON): as trees, and as text."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.fuzz.values import DOUBLES, integer, spoiled, text

__all__ = ["mutated_json", "mutated_text"]

_LINES = (
    "[step.pin]",
    "[parity]",
    "[step.fp16]",
    "x = " + "[" * 5000,
    "x = " + "9" * 5000,
    "x = nan",
    "x = -inf",
    "x = 1e400",
    'doc = "\\u0000"',
    "sizes = { batch = -1 }",
    'sizes = { "x:0" = 4611686018427387904 }',
    "seeds = 100000000000000000000",
    "time_limit = 0.0",
    "[[step]]",
    "a.b.c.d = 1",
)


def mutated_text(rng: random.Random, data: bytes) -> bytes:
    """A text whose lines were moved, doubled, or given other values; now and then its bytes were edited."""
    if rng.random() < 0.15:
        return spoiled(rng, data)
    lines = data.decode("utf-8", "replace").splitlines()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            lines.insert(at, rng.choice(_LINES))
        elif kind == 1 and lines:
            lines.insert(at, rng.choice(lines))
        elif kind == 2 and at < len(lines):
            del lines[at]
        elif at < len(lines) and "=" in lines[at]:
            lines[at] = f"{lines[at].split('=')[0]}= {_toml(rng)}"
    return "\n".join(lines).encode("utf-8", "replace")


def _toml(rng: random.Random) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return str(integer(rng, 80))
    if kind == 1:
        return str(rng.choice(DOUBLES))
    if kind == 2:
        return json.dumps(text(rng), ensure_ascii=True)
    if kind == 3:
        return rng.choice(("true", "false", "[]", "{}", "1979-05-27", "''"))
    if kind == 4:
        return f"{{ {json.dumps(text(rng))} = {integer(rng)} }}"
    return f"[{', '.join(json.dumps(text(rng)) for _ in range(3))}]"


def mutated_json(rng: random.Random, data: bytes) -> bytes:
    """A document with parts that have other types, values or depths; now and then its bytes were edited."""
    if rng.random() < 0.1:
        return spoiled(rng, data)
    root = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = list(_places(root))
        if not places:
            break
        holder, key = rng.choice(places)
        kind = rng.randrange(4)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            other, name = rng.choice(places)
            if isinstance(other, list) or name in other:
                holder[key] = json.loads(json.dumps(other[name])) if _there(other, name) else None
        elif kind == 2 and isinstance(holder, dict):
            holder[text(rng)] = _value(rng)
        else:
            holder[key] = _value(rng)
    try:
        return json.dumps(root).encode("utf-8", "surrogatepass")
    except RecursionError:  # parents that were nested deep themselves
        return b"[" * 5000 + data


def _there(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else 0 <= key < len(holder)


def _places(root: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [root]
    while waiting:
        holder = waiting.pop()
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            found.append((holder, key))
            if isinstance(value, dict | list):
                waiting.append(value)
    return found


def _value(rng: random.Random) -> Any:
    kind = rng.randrange(7)
    if kind == 0:
        return integer(rng, 80)
    if kind == 1:
        return rng.choice(DOUBLES)
    if kind == 2:
        return text(rng)
    if kind == 3:
        return rng.choice((None, True, False, [], {}, [[]], ""))
    if kind == 4:
        deep: Any = 1
        for _ in range(rng.choice((10, 500))):
            deep = [deep] if rng.random() < 0.5 else {"a": deep}
        return deep
    if kind == 5:
        return [integer(rng) for _ in range(rng.randrange(5))]
    return {text(rng): integer(rng)}
