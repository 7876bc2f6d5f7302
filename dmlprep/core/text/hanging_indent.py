"""Wrap lines that are wider than the terminal, with a hanging indent."""

from __future__ import annotations

import re

_MORE = 4
"""Additional indent of the continuation lines."""

_LABEL = re.compile(r" *[^ ]{1,24} {2,}(?=[^ ])")

_COMMAND = re.compile(r"\bdmlprep [a-z]+ [^ ]*[-./]")


def indent_of(text: str) -> int:
    """Return the indent of continuation lines: below the text after a label, or a fixed indent."""
    if label := _LABEL.match(text):
        return label.end()
    return len(text) - len(text.lstrip(" ")) + _MORE


def is_command(text: str) -> bool:
    """Return whether the text contains a command. A user may copy it, and with a line break half of it would run."""
    return _COMMAND.search(text) is not None


def hanging(text: str, width: int, *, before: int = 0) -> str:
    """Break a line between words to ``width`` characters, with an indent, unless it fits or is a command.

    ``before``: the number of characters that are already on the line.
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
