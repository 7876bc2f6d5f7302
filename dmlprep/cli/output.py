"""What several commands write: JSON on stdout, one line of progress on stderr."""

from __future__ import annotations

import sys
from typing import Any

import click

__all__ = ["print_json", "progress_line"]


def print_json(data: Any) -> None:
    """A record, or builtins, as indented JSON on stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2))


def progress_line(share: float, text: str) -> None:
    """Write the share done (0 to 1) over the line before, where stderr is a terminal; at 1 the line goes."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K" + (f"{share:4.0%} {text}" if share < 1 else ""), nl=False, err=True)
