"""The consoles for results and for progress, and progress bars on a terminal; plain text when piped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from shutil import get_terminal_size
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn
from rich.text import Text

from dmlprep.cli.streams import Guarded, own
from dmlprep.report.console import PlainConsole
from dmlprep.report.text import PIPED

_NARROWEST = 60
"""Characters in a line of the narrowest table that is still readable."""


def out() -> Console:
    """Return the console for results on stdout: no wrapping outside terminals, and colours as in ``has_colour``."""
    if not sys.stdout.isatty():
        return PlainConsole(file=own(sys.stdout), soft_wrap=True, width=PIPED)
    console = PlainConsole(file=own(sys.stdout), text_width=get_terminal_size().columns)
    # A narrow terminal breaks the lines of a table itself, which is readable; a table squeezed to "unc… 0.…" is not.
    console.width = max(console.width, _NARROWEST)
    return console


def err(quiet: bool = False) -> Console:
    """Return the console for progress, on stderr; it prints nothing if ``quiet``."""
    return PlainConsole(file=own(sys.stderr), quiet=quiet)


def say_code(console: Console, file: str, code: str) -> None:
    """Write to stderr, also with ``-q``, which code is about to run because a file names it."""
    (err() if console.quiet else console).print(f"{file} sets the metric {code}: dmlprep runs it now", soft_wrap=True)


def words(form: str) -> ProgressColumn:
    """Return a column of a progress bar that shows ``form`` (``{task.description}``) without markup."""
    return TextColumn(form, markup=False)


class Bars:
    """Progress bars on stderr, and plain lines if stderr is not a terminal. A context manager.

    Text that other code writes to stdout and stderr appears above the bars.
    """

    def __init__(self, *columns: ProgressColumn, quiet: bool = False) -> None:
        self._console = err(quiet)
        hidden = quiet or not sys.stderr.isatty()
        self._plain = hidden and not quiet
        # rich redirects the output of other code meanwhile, and would read its escape codes as colours.
        self._bars = Progress(
            *columns, console=self._console, disable=hidden, redirect_stdout=False, redirect_stderr=False
        )

    def __enter__(self) -> Self:
        self._bars.start()
        if not self._bars.disable:
            _beside(lambda text: self._bars.console.print(Text(text)))
        return self

    def __exit__(self, *_: object) -> None:
        _beside(None)
        self._bars.stop()


def _beside(take: Callable[[str], None] | None) -> None:
    """Pass text that other code writes to stdout and stderr to ``take``; ``None``: write it to the streams again."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Guarded):
            stream.beside = take
