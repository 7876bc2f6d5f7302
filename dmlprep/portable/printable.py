"""Make names from third-party models, paths and tools safe to print: no control characters, no line breaks.

Sources: ECMA-48 (a terminal's control functions begin with C0 and C1 characters); Unicode Standard Annex 9 (the
characters that change the text direction); the property Default_Ignorable_Code_Point (the invisible characters).
"""

from __future__ import annotations

import re

INDENT = "    "
"""Indentation of each further line of a text, so that no quoted line begins like a line of dmlprep."""

OURS = ("error:", "internal error:", "stopped;")
"""The first words of dmlprep's own lines that report the end of a run."""

LONGEST_LINE, LONGEST_WORD = 4000, 600
"""Limits for the length of a line and of a word, in characters. Above them, the middle is left out."""

_HIDDEN = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # these change the text direction
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff"  # lone surrogates: bytes of a path that are not UTF-8, or half a character
    # Format characters, and characters that are invisible or blank.
    "\xad\u034f\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d"
    "\u2060-\u2065\u206a-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")
_COMMAND = re.compile(r"##(?:vso|teamcity)?\[|(?<!\S)::", re.IGNORECASE)
"""Matches text in a log that a CI system interprets as a command. GitHub's runner: ``::`` at the start of a line,
also after spaces, and ``##[`` anywhere. The agent of Azure Pipelines: ``##[`` and ``##vso[`` anywhere. TeamCity:
``##teamcity[``. A terminal may break a line at any space, so ``::`` counts after each of them."""
_JSON_COMMAND = re.compile(r"##(?=(?:vso|teamcity)?\[)", re.IGNORECASE)


def printable(text: str) -> str:
    r"""Return ``text`` on one line, with an escape for each character that does not print.

    Examples are ``\x1b``, ``\n`` and ``\u202e``. A backslash stays unchanged, so Windows paths stay paths and text
    does not grow. A byte of a path that is not UTF-8 becomes an escape such as ``\xff``.
    """
    return _HIDDEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    number = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if 0xDC80 <= number <= 0xDCFF:  # surrogateescape (PEP 383)
        number -= 0xDC00
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def paragraph(text: str) -> str:
    """Return a text of dmlprep that may quote others: printable, shortened, further lines indented by ``INDENT``."""
    return ("\n" + INDENT).join(shortened(printable(line)) for line in text.replace("\r\n", "\n").split("\n"))


def inert(text: str, before: str = "") -> str:
    r"""Return ``text`` without commands to CI systems: ``\x3a:`` for ``::``, ``#\x23[`` for ``##[``.

    ``before`` is the part of the line that is already written; it is not returned. A command that begins in it is
    broken up in ``text``.
    """
    written = len(before)

    def broken(match: re.Match[str]) -> str:
        command, start = match.group(), match.start()
        if match.end() <= written:
            return command
        at = max(written - start, 1 if command[0] == "#" else 0)
        return f"{command[:at]}\\x{ord(command[at]):02x}{command[at + 1 :]}"

    return _COMMAND.sub(broken, before + text)[written:]


def apart(text: str) -> str:
    """Return lines of quoted text that look neither like lines of dmlprep nor like commands to CI systems.

    A line that begins like one of ``OURS`` is indented by ``INDENT``.
    """
    lines = inert(text).split("\n")
    return "\n".join(INDENT + line if _is_ours(line) else line for line in lines)


def _is_ours(line: str) -> bool:
    return not line.startswith(INDENT) and line.lstrip().casefold().startswith(OURS)


def shortened(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a line that is short enough to read: the middle of long words, and then of a long line, is left out."""
    if len(text) > LONGEST_WORD:
        text = _WORD.sub(lambda match: _without_middle(match.group(), LONGEST_WORD), text)
    return _without_middle(text, longest)


def _without_middle(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    note = f"...({len(text) - longest} characters)..."
    half = (longest - len(note)) // 2
    return text[:half] + note + text[-half:]


def json_safe(text: str) -> str:
    """Return a JSON document with JSON escapes for the characters that do not print. Its data stays the same.

    Line ends between values stay. A CI system that shows the document in a log finds no command in it.
    """
    return _HIDDEN.sub(lambda match: _json_escape(match.group()), quoted(text))


def quoted(text: str) -> str:
    r"""Return JSON or TOML text whose strings have no commands to CI systems, and read back unchanged.

    ``##[`` becomes ``#\u0023[``.
    """
    return _JSON_COMMAND.sub(r"#\\u0023", text)


def _json_escape(character: str) -> str:
    raw = character.encode("utf-16-be", "surrogatepass").hex()
    return character if character == "\n" else "".join(f"\\u{raw[i : i + 4]}" for i in range(0, len(raw), 4))
