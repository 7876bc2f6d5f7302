"""Files that their owner alone can read: keys."""

from __future__ import annotations

import os
from pathlib import Path

from dmlprep.core.files.reasons import unwritable
from dmlprep.portable.replacing import remove


def write_private(path: Path, content: bytes) -> None:
    """A new file that its owner alone can read (mode 0600; on Windows the folder's permissions hold), whole or not.

    Raises:
        FileExistsError: there is one.
        OutputError: it cannot be written.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        try:
            os.write(file, content)
        except OSError:
            os.close(file)
            remove(path)
            raise
        os.close(file)
    except FileExistsError:
        raise
    except OSError as error:
        raise unwritable(error, path) from error
