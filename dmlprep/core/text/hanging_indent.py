"""Wrap lines that are wider than the terminal, with a hanging indent."""

from __future__ import annotations

import re

_MORE = 4
"""Additional spaces before the continuation lines of a line without a label."""

_LABEL = re.compile(r" *[^ ]{1,24} {2,}(?=[^ ])")

_COMMAND = re.compile(r"(?:^ +|^run: |^next: )dmlprep [a-z]+ |\bdmlprep (?:genai )?[a-z]+ (?:[^ ]*[-./]|['\"$])")


def indent_of(text: str) -> int:
    """Return the number of spaces before continuation lines of ``text``.

    After a label, a word followed by two or more spaces, they align with the text behind it. Other lines get their own
    indent and ``_MORE`` spaces.
    """
    if label := _LABEL.match(text):
        return label.end()
    return len(text) - len(text.lstrip(" ")) + _MORE


def is_command(text: str) -> bool:
    """Return whether the text contains a command of dmlprep that a user may copy.

    With a line break in it, half of the command would run.
    """
    return _COMMAND.search(text) is not None


def hanging(text: str, width: int, *, before: int = 0) -> str:
    """Break a line between words to ``width`` characters, with an indent for the continuation lines.

    A line that fits, is a command, already has line breaks, or has too little width for its indent, is returned
    unchanged.

    Args:
        before: the number of characters that are already on the line in the terminal.
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
