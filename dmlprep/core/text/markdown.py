"""Write Markdown that quotes third-party names: they stay text or code, never a heading, a link, HTML or a mention.

All Markdown documents are written with these functions. Sources: CommonMark 0.31 (section 2.4: every ASCII punctuation
character may be escaped; 6.1: code spans); GitHub Flavored Markdown 0.29 (tables, autolinks, mentions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NewType

from dmlprep.portable.printable import LONGEST_LINE, inert, printable, shortened

Markdown = NewType("Markdown", str)
"""Inline Markdown in which all names are escaped. A table cell must have this type."""

_SIGNS = re.compile(
    r"[\\`*\[\]<>#|~&@$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=www)\.|^[-+=]|(?<=^\d)[.)]|^\d{2,9}[.)]",
    re.IGNORECASE,
)
"""Matches text that Markdown would interpret: characters that begin a form, a link or a mention, or a list at the start
of a line."""


def text(content: object, longest: int = LONGEST_LINE) -> Markdown:
    """Return ``content`` as escaped Markdown on one line, with each run of spaces joined to one.

    Above ``longest`` characters, the middle is left out.
    """
    plain = shortened(" ".join(printable(str(content)).split()), longest)
    return Markdown(_SIGNS.sub(lambda match: f"{match.group()[:-1]}\\{match.group()[-1]}", plain))


def code(content: object) -> Markdown:
    """Return ``content`` as a code span on one line, or as text if a code span cannot represent it.

    A code span cannot be empty, and parsers disagree about a pipe in a code span of a table. Commands to CI systems are
    broken up, because such a system may show the document in its log.
    """
    plain = inert(shortened(printable(str(content))))
    if not plain.strip() or "|" in plain:
        return text(plain) if plain.strip() else Markdown('""')
    longest = max(map(len, re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    # A parser removes one space at both ends.
    space = " " if plain[0] in "` " or plain[-1] in "` " else ""
    return Markdown(f"{fence}{space}{plain}{space}{fence}")


def table(head: Sequence[str], rows: Iterable[Sequence[Markdown]], align: Sequence[str] = ()) -> list[str]:
    """Return the lines of a Markdown table; ``align`` has ``---`` (default) or ``--:`` for each column."""
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(align or ['---'] * len(head))}|"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]
