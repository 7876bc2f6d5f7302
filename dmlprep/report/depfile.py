"""Write the files that a result depends on for build systems: the files of the record, and dmlprep itself."""

from __future__ import annotations

import os
from pathlib import Path

from dmlprep.core import _version
from dmlprep.core.errors import OutputError
from dmlprep.record import RunRecord


def make_rule(record: RunRecord) -> bytes:
    """Return a rule for make and ninja (a depfile): the result, and the files that it depends on.

    Raises:
        OutputError: a file name contains control characters.
    """
    sources = " \\\n  ".join(_escaped(name) for name in _named(record))
    return os.fsencode(f"{_escaped(str(Path(record.output).absolute()))}: \\\n  {sources}\n")


def lines(record: RunRecord) -> bytes:
    """Return the files that the result depends on, one in each line, as UTF-8.

    Folders are left out, because MSBuild reports a folder as a missing file.

    Raises:
        OutputError: a file name contains control characters, or is not valid UTF-8.
    """
    names = [_whole(name) for name in _named(record) if not os.path.isdir(name)]
    try:
        return "".join(f"{name}\n" for name in names).encode()
    except UnicodeEncodeError:
        raise OutputError("a file name is not valid UTF-8", where=record.input, fix=_RENAME) from None


_RENAME = "rename the file, or omit --depfile"


def _named(record: RunRecord) -> list[str]:
    """Return the absolute paths of the files that a result depends on.

    The first is dmlprep's ``core/_version.py``, which is a newer file if another version is installed.
    """
    files = (Path(_version.__file__), *map(Path, record.facts.files))
    return list(dict.fromkeys(str(file.absolute()) for file in files))


def _whole(name: str) -> str:
    if any(character < " " for character in name):
        # A line end would begin another rule.
        raise OutputError("a file name contains control characters", where=repr(name), fix=_RENAME)
    return name


def _escaped(name: str) -> str:
    return _whole(name).replace("\\", "/").replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ")
