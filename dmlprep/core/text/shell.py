"""Command lines that users are told to run: whoever copies one runs what it says, whatever is in its names."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import PurePath

from dmlprep.portable.printable import inert, printable

_SPELLED = re.compile(r"[^ -~]|['\\#:]")
_BARE = re.compile(r"[\w./\\:=+-]+", re.ASCII)
_ACTS = re.compile('["%$`!\u2018-\u201e]|\\\\$')
"""What acts inside double quotes in cmd or in PowerShell, whose quotes may be curled."""

_STANDS_FOR = "NAME"


def command_line(*words: str | PurePath) -> str:
    """Words as a line for the user's shell."""
    return " ".join(map(word, words))


def word(text: str | PurePath, *, windows: bool = sys.platform == "win32") -> str:
    """One word as a shell takes it: quoted where it must be.

    Characters that do not print, and commands to CI machines, are spelled out, as bash, zsh and POSIX of 2024 read them
    (``$'\\x1b'``). On Windows no quotes serve cmd and PowerShell alike for every name: ``NAME`` stands for the others.
    A path that begins with a hyphen, which would be an option, becomes ``./-path``.
    """
    if isinstance(text, PurePath):
        text = f"./{text}" if str(text).startswith("-") else str(text)
    hidden = inert(printable(text)) != text
    if windows:
        if text and _BARE.fullmatch(text):
            return text
        return _STANDS_FOR if hidden or _ACTS.search(text) else f'"{text}"'
    return f"$'{_SPELLED.sub(_spell, text)}'" if hidden else shlex.quote(text)


def _spell(found: re.Match[str]) -> str:
    character = found.group()
    if character in "'\\":
        return f"\\{character}"
    if character not in "#:" and character.isprintable() and printable(character) == character:
        return character
    # Octal: three digits, so that what follows is not taken for one of them.
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(character))
