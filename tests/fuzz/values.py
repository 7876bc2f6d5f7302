"""Values that break programs: numbers at their limits, names that are more than names."""

from __future__ import annotations

import math
import random

__all__ = ["DOUBLES", "INTEGERS", "TEXTS", "integer", "spoiled", "text"]

_EDGES = (0, 1, 2, 7, 8, 64, 127, 128, 255, 256, 1024, 65504, 65535, 65536, 2**31, 2**32, 2**40, 2**62, 2**63)
INTEGERS = tuple(sorted({sign * (edge + step) for edge in _EDGES for step in (-1, 0, 1) for sign in (1, -1)}))
"""Integers at the limits of types, sizes and memory."""

DOUBLES = (0.0, -0.0, 1.0, -1.0, 1e-45, 6e-8, 65504.0, 65520.0, 1e38, -3.4e38, 1e308, math.inf, -math.inf, math.nan)
"""Floating-point numbers at the limits of FP16, FP32 and FP64."""

TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "x",
    ".",
    "..",
    "../../x",
    "/",
    "/dev/zero",
    "C:\\x",
    "\\\\host\\share",
    "NUL",
    "a\nerror: forged",
    "a\r\nb",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\u202egnp",
    "\u2028",
    "\x00self",
    "\x00",
    "[/]",
    "[bold]x",
    "{{ 7*7 }}",
    "{0}",
    "%s%n",
    "</script><script>alert(1)</script>",
    '"',
    "'",
    "`id`",
    "$(id)",
    "::error::x",
    "é",
    "日本",
    "a" * 300,
    "n" * 100_000,
    "ai.onnx",
    "com.microsoft",
    "Loop",
    "If",
    "9**9**9",
    "a*b",
    "batch",
    "x:0",
    "1e999",
    "nan",
)
"""Names and texts: empty, long, of other systems, with control characters, of other languages of programs."""


def integer(rng: random.Random, bits: int = 64, signed: bool = True) -> int:
    """A number that its type can hold: mostly small, sometimes at a limit."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    number = rng.choice(INTEGERS) if rng.random() < 0.5 else rng.randint(-2, 9)
    return min(max(number, low), high)


def text(rng: random.Random, known: list[str] | None = None) -> str:
    """A text: one of those above, or one that stands elsewhere in the same input."""
    return rng.choice(known) if known and rng.random() < 0.6 else rng.choice(TEXTS)


def spoiled(rng: random.Random, data: bytes) -> bytes:
    """The bytes with a few edits: cut, repeated, overwritten, flipped."""
    held = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at, count = rng.randrange(len(held) + 1), rng.choice((1, 1, 2, 4, 8, 64))
        kind = rng.randrange(6)
        if kind == 0:
            del held[at:]
        elif kind == 1:
            del held[at : at + count]
        elif kind == 2:
            held[at:at] = rng.randbytes(count)
        elif kind == 3:
            held[at : at + count] = rng.choice((b"\0", b"\xff", b"\x80", b"\x7f")) * count
        elif kind == 4:
            held[at:at] = held[at : at + count * 8]
        elif at < len(held):
            held[at] ^= 1 << rng.randrange(8)
    return bytes(held)
