"""Names of a stranger's model, path or tool as text that can be shown: nothing in them acts on a terminal or a line.

Sources: ECMA-48 (the control functions of a terminal begin with C0 and C1 characters); Unicode Standard Annex 9 (the
characters that turn text around) and the property Default_Ignorable_Code_Point (those that nobody sees).
"""

from __future__ import annotations

import re

INDENT = "    "
"""Before each further line of a text of several lines: none of them begins like a line of ours."""

OURS = ("error:", "internal error:", "stopped;")
"""How lines begin that tell of the end of a run."""

LONGEST_LINE, _LONGEST_WORD = 4000, 600
"""Characters beyond which a line, or a name without a space, loses its middle."""

_HIDDEN = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns text around
    "\u2028\u2029"  # ends of a line and of a paragraph
    "\ud800-\udfff"  # lone surrogates: bytes of a path that are no UTF-8, or half a character
    # Format characters, and those that take no room or leave it blank.
    "\xad\u034f\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d"
    "\u2060-\u2065\u206a-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_WORD = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")
_COMMAND = re.compile(r"##(?:vso|teamcity)?\[|(?<!\S)::", re.IGNORECASE)
"""What a CI machine takes for a command in a log. GitHub's runner: ``::`` at the start of a line, after spaces too, and
``##[`` anywhere. The agent of Azure Pipelines: ``##[`` and ``##vso[`` anywhere. TeamCity: ``##teamcity[``. A terminal
may break a line at any space, so ``::`` counts after each of them."""
_JSON_COMMAND = re.compile(r"##(?=(?:vso|teamcity)?\[)", re.IGNORECASE)


def printable(text: str) -> str:
    """``text`` on one line, each character that does not print as its escape: ``\\x1b``, ``\\n``, ``\\u202e``.

    A backslash stays as it is: what is read is never longer than it must be, and paths of Windows stay paths. A byte
    of a path that is no UTF-8 is ``\\xff``.
    """
    return _HIDDEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    number = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if 0xDC80 <= number <= 0xDCFF:  # surrogateescape (PEP 383)
        number -= 0xDC00
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def paragraph(text: str) -> str:
    """A text of our own that may quote others: printable, shortened, further lines with ``INDENT``."""
    return ("\n" + INDENT).join(shortened(printable(line)) for line in text.replace("\r\n", "\n").split("\n"))


def inert(text: str, before: str = "") -> str:
    """Return ``text`` without commands to CI machines: ``\\x3a:`` for ``::``, ``#\\x23[`` for ``##[``.

    A command that begins in ``before``, the part of the line that is written already, is broken off here.
    """
    written = len(before)

    def broken(found: re.Match[str]) -> str:
        command, start = found.group(), found.start()
        if found.end() <= written:
            return command
        at = max(written - start, 1 if command[0] == "#" else 0)
        return f"{command[:at]}\\x{ord(command[at]):02x}{command[at + 1 :]}"

    return _COMMAND.sub(broken, before + text)[written:]


def apart(text: str) -> str:
    """Return lines that may begin with a name: inert, with ``INDENT`` where one would begin like one of ``OURS``."""
    lines = inert(text).split("\n")
    return "\n".join(INDENT + line if _is_ours(line) else line for line in lines)


def _is_ours(line: str) -> bool:
    return not line.startswith(INDENT) and line.lstrip().casefold().startswith(OURS)


def shortened(text: str, longest: int = LONGEST_LINE) -> str:
    """A line without the middle of names, and of the whole, where these are too long to be read."""
    if len(text) > _LONGEST_WORD:
        text = _WORD.sub(lambda found: _without_middle(found.group(), _LONGEST_WORD), text)
    return _without_middle(text, longest)


def _without_middle(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    said = f"...({len(text) - longest} characters)..."
    half = (longest - len(said)) // 2
    return text[:half] + said + text[-half:]


def json_safe(text: str) -> str:
    """A JSON document in which each character that does not print is JSON's own escape of it; the data is the same.

    Line ends between its values stay. A CI machine that shows it in a log finds no command in it.
    """
    return _HIDDEN.sub(lambda found: _json_escape(found.group()), quoted(text))


def quoted(text: str) -> str:
    """Return strings of JSON or TOML without commands to CI machines: ``##[`` is ``#\\u0023[``, which reads back."""
    return _JSON_COMMAND.sub(r"#\\u0023", text)


def _json_escape(character: str) -> str:
    raw = character.encode("utf-16-be", "surrogatepass").hex()
    return character if character == "\n" else "".join(f"\\u{raw[i : i + 4]}" for i in range(0, len(raw), 4))
