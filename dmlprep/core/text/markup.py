"""Write HTML and XML that quote third-party names: they stay text, never an element or an attribute."""

from __future__ import annotations

import re

from dmlprep.portable.printable import printable, shortened

# The same escapes as those of MarkupSafe, which jinja uses.
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})
_COMMAND = ("##", "#&#35;")
"""Arguments for ``str.replace``. Followed by ``[`` or a word, ``##`` is a command to CI systems, whose log may show the
document."""


def html_text(content: object) -> str:
    """Return ``content``, escaped for an HTML element or a quoted attribute.

    Each line is shortened, and line ends become character references.
    """
    lines = (shortened(printable(line)) for line in str(content).split("\n"))
    return "&#10;".join(line.translate(_ENTITIES) for line in lines).replace(*_COMMAND)


def xml_text(content: object) -> str:
    r"""Return ``content``, escaped for an XML element or a quoted attribute, on one line and unshortened.

    Characters that do not print become visible escapes such as ``\x1b``. They include all that XML 1.0 does not allow
    (section 2.2).
    """
    return printable(str(content)).translate(_ENTITIES).replace(*_COMMAND)


_OF_XML = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_value(content: str) -> str:
    """Return ``content``, escaped for an XML element or a quoted attribute that a program reads back.

    It is not shortened. Characters that do not print become character references, or visible escapes where XML 1.0 does
    not allow them.
    """
    return re.sub("[^ -~]", _reference, content.translate(_ENTITIES)).replace(*_COMMAND)


def _reference(match: re.Match[str]) -> str:
    character = match.group()
    shown = printable(character)
    return f"&#{ord(character)};" if shown != character and _OF_XML.match(character) else shown
