"""Format numbers of bytes, seconds and things for readers."""

from __future__ import annotations


def bytes_text(count: int) -> str:
    """Return a size in bytes as text for readers: ``950 B``, ``1.5 kB`` or ``20.0 MB`` (powers of 1000)."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.1f} kB" if count < 1e5 else f"{count / 1e6:.1f} MB"


def count_text(number: int, noun: str) -> str:
    """Return a number with a noun, which gets an ``s`` except for 1: ``1 job``, ``3 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seconds_text(seconds: float | None) -> str:
    """Return a time as text with three significant digits, in s, ms or us: ``12.3 ms``; empty for ``None``."""
    if seconds is None:
        return ""
    size = abs(seconds)
    if size >= 100:
        return f"{seconds:.0f} s"
    unit, factor = ("s", 1.0) if size >= 1 else ("ms", 1e3) if size >= 1e-3 else ("us", 1e6)
    return f"{seconds * factor:.3g} {unit}" if size * factor < 999.5 else f"{seconds * factor:.0f} {unit}"
