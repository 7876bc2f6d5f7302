"""The consoles of results and of progress, and bars on a terminal; plain text when piped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import get_terminal_size

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn
from rich.text import Text

from dmlprep.cli.streams import Guarded, own
from dmlprep.report.console import PlainConsole
from dmlprep.report.text import PIPED

_NARROWEST = 60
"""Characters a line of the narrowest table that says what it must."""


def out() -> Console:
    """The console of results: no colour when piped or with NO_COLOR, no wrapping where there is no terminal."""
    if not sys.stdout.isatty():
        return PlainConsole(file=own(sys.stdout), soft_wrap=True, width=PIPED)
    console = PlainConsole(file=own(sys.stdout), text_width=get_terminal_size().columns)
    # A narrow terminal breaks the lines of a table itself, which can be read; one squeezed to "unc…  0.…" cannot.
    console.width = max(console.width, _NARROWEST)
    return console


def err(quiet: bool = False) -> Console:
    """The console of progress."""
    return PlainConsole(file=own(sys.stderr), quiet=quiet)


def say_code(console: Console, file: str, code: str) -> None:
    """Write to stderr which code is about to run because a file names it. ``-q`` does not silence it.

    Args:
        console: of the bars that are shown.
    """
    (err() if console.quiet else console).print(f"{file} names the metric {code}: its code runs now", soft_wrap=True)


def words(form: str) -> ProgressColumn:
    """A column of a bar that shows a field: ``{task.description}``."""
    return TextColumn(form, markup=False)


def bars(console: Console, *columns: ProgressColumn, quiet: bool = False) -> Progress:
    """Bars of progress, on a terminal alone."""
    hidden = quiet or not sys.stderr.isatty()
    # What others write meanwhile is rich's to redirect, and it would take their codes for colours: see ``above``.
    return Progress(*columns, console=console, disable=hidden, redirect_stdout=False, redirect_stderr=False)


@contextmanager
def above(progress: Progress) -> Iterator[None]:
    """Show bars; what others write to stdout and stderr meanwhile stands above them."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, Guarded)]
    with progress:
        for stream in streams:
            stream.beside = None if progress.disable else lambda text: progress.console.print(Text(text))
        try:
            yield
        finally:
            for stream in streams:
                stream.beside = None
