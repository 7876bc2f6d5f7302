"""What a page of the docs lets its reader do, and the output that it shows, held against what is printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Typed", "steps", "unlike"]


@dataclass
class Typed:
    """A command of the page, with the output that it shows."""

    command: str
    shown: list[str] = field(default_factory=list)


def steps(text: str) -> Iterator[Typed | tuple[str, str]]:
    """What a reader does, in order: commands, and files (name, text) that a sentence before the block names."""
    for found in re.finditer(r"^```(console|python)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if found[1] == "python":
            if named := re.findall(r"Save this as `([\w.]+)`", text[: found.start()]):
                yield named[-1], found[2]
            continue
        typed: list[Typed] = []
        for line in found[2].splitlines():
            if line.startswith("$ "):
                typed.append(Typed(line[2:]))
            elif typed:
                typed[-1].shown.append(line)
        yield from typed


def _plain(line: str) -> str:
    """A line without what differs from run to run: fractions and versions, digests of 12 digits."""
    return re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", re.sub(r"\d+(?:\.\d+)+(?:e-\d+)?", "0.0", line.rstrip()))


def unlike(shown: list[str], printed: list[str]) -> str:
    """Where what was printed is not what is shown; empty where it is.

    ``...`` alone stands for any lines, at the end of a line for its rest, after its first letter for what is between.
    """
    pattern = ""
    for line in shown:
        if line == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(re.escape(_plain(part)) for part in line.split("...")) + r"\n"
    text = "".join(_plain(line) + "\n" for line in printed)
    return "" if not shown or re.fullmatch(pattern, text) else f"shown:\n{chr(10).join(shown)}\nprinted:\n{text}"
