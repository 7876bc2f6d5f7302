"""Output of several commands: lines and JSON on stdout; errors, and one line of progress, on stderr.

All output goes through this module or ``cli.console``. They make names from models, paths and tools printable, so that
messages need not.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

import click

from dmlprep.cli.streams import own
from dmlprep.core.errors import DmlprepError
from dmlprep.portable.printable import apart, inert, json_safe, paragraph, printable, shortened
from dmlprep.portable.shares import percent

if TYPE_CHECKING:
    from dmlprep.record import RunRecord, Verdict
    from dmlprep.record.aliases import Progress
    from dmlprep.report.placement_text import Line

_PROGRESS = 100
"""Most characters of a line of progress: a line that the terminal breaks cannot be overwritten."""


def _write(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()


def echo(text: str = "", *, err: bool = False) -> None:
    """Write a sentence to stdout, or to stderr; later lines of it are indented."""
    stream = sys.stderr if err else sys.stdout
    lines = apart(paragraph(text)).split("\n")
    _write("".join(f"{_fitted(line, stream)}\n" for line in lines), own(stream))


def _fitted(line: str, stream: TextIO, *, before: int = 0) -> str:
    """Break a line that is too wide for the terminal, and indent its rest."""
    if not stream.isatty():
        return line
    from shutil import get_terminal_size

    from dmlprep.core.text.hanging_indent import hanging

    return hanging(line, get_terminal_size().columns, before=before)


def echo_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout. Line ends in them are escaped, and very long ones are shortened."""
    texts = (_fitted(apart(shortened(printable(line))), sys.stdout) for line in lines)
    _write("".join(f"{line}\n" for line in texts), own(sys.stdout))


def echo_coloured(lines: Iterable[Line]) -> None:
    """Write lines to stdout. Their first words have a colour if ``has_colour`` returns True."""
    coloured = has_colour(sys.stdout)
    for line in lines:
        text = _fitted(apart(shortened(printable(line.start + line.rest))), sys.stdout)
        start = printable(line.start) if line.rest else text  # the terminal's width may break a long line
        if coloured and line.colour and text.startswith(start):
            style: dict[str, Any] = {"dim": True} if line.colour == "dim" else {"fg": line.colour, "bold": True}
            text = click.style(start, **style) + text.removeprefix(start)
        click.echo(text, file=own(sys.stdout), color=coloured)


def has_colour(stream: TextIO) -> bool:
    """Return whether text on a stream has colours: on terminals, except with TERM=dumb.

    With FORCE_COLOR it has them everywhere, with NO_COLOR nowhere.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def echo_commands(lines: Iterable[str]) -> None:
    """Write lines to stdout that a CI machine reads as dmlprep's commands."""
    _write("".join(f"{shortened(printable(line))}\n" for line in lines), own(sys.stdout))


def echo_page(text: str, *, err: bool = False) -> None:
    """Write a document in full to stdout, or to stderr; tabs become spaces, and control characters are escaped."""
    lines = (apart(printable(line)) for line in text.expandtabs(4).split("\n"))
    _write("\n".join(lines), own(sys.stderr if err else sys.stdout))


def say(text: str, fix: str = "", *, head: str = "error: ") -> None:
    """Write an error and its fix to stderr."""
    with contextlib.suppress(OSError):  # without stderr, the exit code is the whole report
        click.secho(head, file=own(sys.stderr), fg="red", bold=True, nl=False, color=has_colour(sys.stderr))
        paragraphs = [inert(paragraph(text)), *([inert(paragraph(f"  fix: {fix}"))] if fix else [])]
        lines = [line for one in paragraphs for line in one.split("\n")]
        _write(
            "".join(f"{_fitted(x, sys.stderr, before=0 if i else len(head))}\n" for i, x in enumerate(lines)),
            own(sys.stderr),
        )


def print_error(error: DmlprepError) -> None:
    """Write an error to stderr: what, where, code and fix."""
    what = f"{printable(error.where)}: {error.what}" if error.where else error.what
    say(what + (f" [{error.code}]" if error.code else ""), error.fix)


def print_usage(error: click.ClickException) -> None:
    """Write click's error about a command line to stderr, in click's form."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        echo_page(f"{error.format_message()}\n", err=True)
        return
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        from difflib import get_close_matches

        nearest = get_close_matches(error.option_name, error.possibilities, 1)
        error = click.NoSuchOption(error.option_name, possibilities=nearest, ctx=error.ctx)
    text = error.format_message().replace("\n\t", " ")  # click's list of the choices of a missing option
    lines = [f"Error: {inert(shortened(printable(text)))}"]
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        lines = [context.get_usage(), f"Try '{context.command_path} --help' for help.", "", *lines]
    with contextlib.suppress(OSError):
        _write("".join(f"{line}\n" for line in lines), own(sys.stderr))


def print_json(data: object) -> None:
    """Print a record, or builtins, as indented JSON on stdout."""
    from dmlprep.core.text.documents import to_json

    print_json_text(to_json(data))


def print_json_text(raw: bytes) -> None:
    """Print JSON on stdout: unchanged in UTF-8, otherwise in ASCII with JSON's own escapes."""
    stream = own(sys.stdout)
    text = json_safe(raw.decode("utf-8"))
    utf8 = codecs.lookup(stream.encoding or "ascii").name.startswith("utf")
    _write(text if utf8 else re.sub(r"[^\x00-\x7f]", _escape, text), stream)


def _escape(match: re.Match[str]) -> str:
    raw = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[i]:02x}{raw[i + 1]:02x}" for i in range(0, len(raw), 2))


def show_verdict(verdict: Verdict, output_format: str, *, quiet: bool = False) -> None:
    """Print a verdict with its findings on stdout, as text or JSON; ``quiet``: one line if it passed."""
    if output_format == "json":
        print_json(verdict)
        return
    from dmlprep.cli.bars import out
    from dmlprep.report.text import show_findings, show_verdicts

    show_verdicts([verdict], out(), brief=quiet)
    if not quiet or verdict.outcome != "passed":
        show_findings(verdict.findings, out())


def show_run(record: RunRecord, output_format: str, *, quiet: bool = False, verbose: bool = True) -> None:
    """Print the record of a run as text, JSON, or lines for GitHub or MSBuild.

    Args:
        quiet: text in one line.
        verbose: text with all tables; False: a summary. ``quiet`` overrides it.
    """
    if output_format == "json":
        print_json_text(record.to_json())
    elif output_format == "github":
        from dmlprep.report.github import annotation_lines

        echo_commands(annotation_lines(record))
    elif output_format == "msbuild":
        from dmlprep.report import msbuild

        echo_commands(msbuild.lines(record))
    else:
        from dmlprep.cli.bars import out
        from dmlprep.report.text import show_briefly, show_record, show_summary

        (show_briefly if quiet else show_record if verbose else show_summary)(record, out())


@contextlib.contextmanager
def progress_line(quiet: bool) -> Iterator[Progress]:
    """Yield a function that shows progress on one line of a terminal; at the end the line is removed."""

    def show(share: float, text: str) -> None:
        if not quiet and sys.stderr.isatty():
            line = f"{percent(share, 0):>5} {inert(shortened(printable(text), _PROGRESS))}" if share < 1 else ""
            _write(f"\r\x1b[K{line}", own(sys.stderr))

    yield show
    show(1.0, "")
