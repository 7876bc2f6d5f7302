"""Where temporary files of the command line go."""

from __future__ import annotations

import contextlib
import os
import tempfile


def choose_place() -> None:
    """Choose the place for temporary files that Python would choose, without trying it with a file that has a name.

    Python's own file of eight random letters would stay if the program is killed just then, and no later start could
    tell whose it is. Where none of these places will do, Python looks further.
    """
    if tempfile.tempdir is not None:
        return
    given = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    for place in filter(None, (*given, "/tmp" if os.name == "posix" else None)):
        folder = os.path.abspath(place)
        with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
            tempfile.tempdir = folder
            return
