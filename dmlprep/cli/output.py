"""What several commands write: JSON on stdout; errors, and one line of progress, on stderr."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from dmlprep.errors import DmlprepError
from dmlprep.record.shares import percent

if TYPE_CHECKING:
    from dmlprep.record import Verdict

__all__ = [
    "echo",
    "open_streams",
    "print_error",
    "print_json",
    "print_json_text",
    "progress_line",
    "say",
    "show_verdict",
]


def open_streams() -> None:
    """Let stdout and stderr take every character: one that their encoding lacks is written as ``\\u043c``.

    A pipe or a file on Windows has the code page of Windows (cp1252, cp437), which has few of the letters that paths
    and tensor names may have.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Write a line to stdout, or to stderr, in that stream's own encoding."""
    # Not click's default stream, which writes UTF-8 where the stream is ASCII and rich beside it does not.
    click.echo(text, file=sys.stderr if err else sys.stdout, nl=nl)


def say(text: str, fix: str = "", *, head: str = "error: ") -> None:
    """Write what went wrong, and how to mend it, to stderr."""
    with contextlib.suppress(OSError):  # where stderr takes nothing, the exit code is all that can be said
        click.secho(head, file=sys.stderr, fg="red", bold=True, nl=False)
        echo(text, err=True)
        if fix:
            echo(f"  fix: {fix}", err=True)


def print_error(error: DmlprepError) -> None:
    """Write an error with where it happened and its code to stderr."""
    what = f"{error.where}: {error.what}" if error.where else error.what
    say(what + (f" [{error.code}]" if error.code else ""), error.fix)


def print_json(data: Any) -> None:
    """A record, or builtins, as indented JSON on stdout."""
    import msgspec

    print_json_text(msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n")


def print_json_text(raw: bytes) -> None:
    """JSON on stdout: as it is in UTF-8, else in ASCII with JSON's own escapes, which every reader takes."""
    text = raw.decode("utf-8")
    utf8 = codecs.lookup(sys.stdout.encoding or "ascii").name.startswith("utf")
    echo(text if utf8 else re.sub(r"[^\x00-\x7f]", _escape, text), nl=False)


def _escape(found: re.Match[str]) -> str:
    raw = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[i]:02x}{raw[i + 1]:02x}" for i in range(0, len(raw), 2))


def show_verdict(verdict: Verdict, output_format: str) -> None:
    """A verdict with its findings on stdout, as text or JSON."""
    if output_format == "json":
        print_json(verdict)
        return
    from dmlprep.cli.console import out
    from dmlprep.report.text import show_findings, show_verdicts

    show_verdicts([verdict], out())
    show_findings(verdict.findings, out())


def progress_line(share: float, text: str) -> None:
    """Write the share done (0 to 1) over the line before, where stderr is a terminal; at 1 the line goes."""
    if sys.stderr.isatty():
        echo("\r\x1b[K" + (f"{percent(share, 0):>5} {text}" if share < 1 else ""), nl=False, err=True)
