"""``dmlprep genai check``."""

from __future__ import annotations

from pathlib import Path

import click

from dmlprep.cli.output import echo
from dmlprep.record.printable import printable

__all__ = ["command"]


@click.command("check")
@click.argument("folder", type=click.Path(path_type=Path))
def command(folder: Path) -> int:
    """Say what is wrong with FOLDER. Edits nothing, reads no weights."""
    from dmlprep.genai import open_folder

    opened = open_folder(folder)
    for one in opened.config.findings:
        echo(f"{one.severity} {one.code}: {printable(one.message)}")
    return int(any(one.severity == "error" for one in opened.config.findings))
