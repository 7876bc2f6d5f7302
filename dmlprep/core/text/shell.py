"""Quote command lines for users to copy, so that names in them are never run as commands."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import PurePath

from dmlprep.portable.printable import LONGEST_LINE, LONGEST_WORD, inert, printable

_SPELLED = re.compile(r"[^ -~]|['\\#:]")
_BARE = re.compile(r"[\w./\\:=+-]+", re.ASCII)
_ACTS = re.compile('["%$`!\u2018-\u201e]|\\\\$')
"""Characters with an effect inside double quotes in cmd or PowerShell, which also accepts curly quotes."""

_STANDS_FOR = "NAME"


def command_line(*words: str | PurePath, whole: bool = False) -> str:
    """Return the words as one command line for the user's shell, each quoted if necessary.

    Output shortens long lines, and might then leave out one quote of two: a name would run as a command. So in a long
    command, the placeholder ``NAME`` replaces the longest words.

    Args:
        whole: True to keep long words, for a record that is not shortened.
    """
    texts = [word(one) for one in words]
    for longest in () if whole else (LONGEST_WORD, 100, 20, 0):
        texts = [_STANDS_FOR if len(one) > longest else one for one in texts]
        if sum(map(len, texts)) + len(texts) <= LONGEST_LINE // 2:  # a sentence around it has the other half
            break
    return " ".join(texts)


def word(text: str | PurePath, *, windows: bool = sys.platform == "win32") -> str:
    r"""Return one word for a shell, quoted if necessary.

    Characters that do not print, and commands to CI systems, are written as escapes that bash, zsh and POSIX of 2024
    read (``$'\x1b'``). On Windows, a word that no quotes protect in both cmd and PowerShell is replaced by the
    placeholder ``NAME``. A path that begins with a hyphen, which would be an option, becomes ``./-path``.
    """
    if isinstance(text, PurePath):
        text = f"./{text}" if str(text).startswith("-") else str(text)
    hidden = inert(printable(text)) != text
    if windows:
        if text and _BARE.fullmatch(text):
            return text
        return _STANDS_FOR if hidden or _ACTS.search(text) else f'"{text}"'
    return f"$'{_SPELLED.sub(_spell, text)}'" if hidden else shlex.quote(text)


def _spell(match: re.Match[str]) -> str:
    character = match.group()
    if character in "'\\":
        return f"\\{character}"
    if character not in "#:" and character.isprintable() and printable(character) == character:
        return character
    # Three octal digits, so that a following digit is not part of the escape.
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(character))
