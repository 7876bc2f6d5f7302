"""The start of the command line: ``--version`` and ``--help`` are answered without click, which takes longer to import.

Every other command line is for ``dmlprep.cli.main``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from shutil import get_terminal_size
from typing import NoReturn

from dmlprep.cli.commands import HELP, help_text
from dmlprep.core._version import __version__


def main() -> NoReturn:
    """Answer ``--version`` and ``--help``, or run the whole command line; exit with its code."""
    text = ""
    if sys.argv[1:] in (["-V"], ["--version"]):
        text = f"dmlprep, version {__version__}\n"
    elif len(sys.argv) == 2 and sys.argv[1] in HELP:
        text = help_text(get_terminal_size().columns)
    if text and sys.stdout is not None and "_DMLPREP_COMPLETE" not in os.environ:
        with contextlib.suppress(OSError):  # a full disk, or a pipe without a reader: the whole command line reports it
            sys.stdout.write(text)
            sys.stdout.flush()
            sys.exit(0)
    from dmlprep.cli.main import main as run

    run()
