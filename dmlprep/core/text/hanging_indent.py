"""Lines that are longer than a terminal is wide: where they go on, and which are left to the terminal."""

from __future__ import annotations

import re

_MORE = 4
"""Characters that a line goes on by behind its own indent."""

_LABEL = re.compile(r" *[^ ]{1,24} {2,}(?=[^ ])")

_COMMAND = re.compile(r"\bdmlprep [a-z]+ [^ ]*[-./]")


def indent_of(text: str) -> int:
    """Characters before what a line goes on with: below its text, where a label stands before that."""
    if label := _LABEL.match(text):
        return label.end()
    return len(text) - len(text.lstrip(" ")) + _MORE


def is_command(text: str) -> bool:
    """Whether somebody may copy a command from it: a line end in it would run half of it."""
    return _COMMAND.search(text) is not None


def hanging(text: str, width: int, *, before: int = 0) -> str:
    """Break a line of ``width`` characters between words, with an indent, unless it fits or is a command.

    ``before``: so many characters stand before it already.
    """
    indent = indent_of(text)
    if len(text) + before <= width or is_command(text) or "\n" in text or width < 2 * indent:
        return text
    from textwrap import TextWrapper

    words = text.lstrip(" ")
    breaking = TextWrapper(
        width,
        initial_indent=" " * (before + len(text) - len(words)),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return "\n".join(breaking.wrap(words))[before:]
