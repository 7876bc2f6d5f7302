"""How views of a record write numbers of bytes."""

from __future__ import annotations


def bytes_text(count: int) -> str:
    """A number of bytes with as many digits as tell something (powers of 1000)."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.1f} kB" if count < 1e5 else f"{count / 1e6:.1f} MB"
