"""What several commands write: JSON on stdout; errors, and one line of progress, on stderr."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import click

from dmlprep.errors import DmlprepError

__all__ = ["print_error", "print_json", "progress_line", "say"]


def say(text: str, fix: str = "", *, head: str = "error: ") -> None:
    """Write what went wrong, and how to mend it, to stderr."""
    with contextlib.suppress(OSError):  # where stderr takes nothing, the exit code is all that can be said
        click.secho(head, fg="red", bold=True, nl=False, err=True)
        click.echo(text, err=True)
        if fix:
            click.echo(f"  fix: {fix}", err=True)


def print_error(error: DmlprepError) -> None:
    """Write an error with where it happened and its code to stderr."""
    what = f"{error.where}: {error.what}" if error.where else error.what
    say(what + (f" [{error.code}]" if error.code else ""), error.fix)


def print_json(data: Any) -> None:
    """A record, or builtins, as indented JSON on stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2))


def progress_line(share: float, text: str) -> None:
    """Write the share done (0 to 1) over the line before, where stderr is a terminal; at 1 the line goes."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K" + (f"{share:4.0%} {text}" if share < 1 else ""), nl=False, err=True)
