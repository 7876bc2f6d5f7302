"""HTML and XML that quote strangers: a name is text there, never an element, an attribute or a character that acts."""

from __future__ import annotations

import re

from dmlprep.portable.printable import printable, shortened

# As MarkupSafe and so jinja's own escapes write them.
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})
_COMMAND = ("##", "#&#35;")
"""With ``[`` or a word behind it a command to CI machines, whose log may show the document."""


def html_text(content: object) -> str:
    """Return ``content`` for an element, or an attribute in quotes; its line ends stay, as references."""
    lines = (shortened(printable(line)) for line in str(content).split("\n"))
    return "&#10;".join(line.translate(_ENTITIES) for line in lines).replace(*_COMMAND)


def xml_text(content: object) -> str:
    """Return ``content`` for an element, or an attribute in quotes, on one line and whole.

    A character that XML 1.0 does not have (section 2.2) is among those that do not print.
    """
    return printable(str(content)).translate(_ENTITIES).replace(*_COMMAND)


_OF_XML = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_value(content: str) -> str:
    """Return ``content`` as a program reads it back: whole, with references to characters that do not print."""
    return re.sub("[^ -~]", _reference, content.translate(_ENTITIES)).replace(*_COMMAND)


def _reference(match: re.Match[str]) -> str:
    character = match.group()
    shown = printable(character)
    return f"&#{ord(character)};" if shown != character and _OF_XML.match(character) else shown
