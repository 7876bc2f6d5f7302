"""``dmlprep report``."""

from __future__ import annotations

from pathlib import Path

import click

from dmlprep import api
from dmlprep.cli.help import Command
from dmlprep.cli.options import PATH, option, output_options
from dmlprep.cli.output import echo, show_run


@click.command("report", cls=Command)
@click.argument("run", type=PATH)
@option("--html", type=PATH, help="Write the report as one self-contained HTML file.")
@option("--force", is_flag=True, help="Replace the HTML file.")
@output_options("text", "json", "github")
def command(run: Path, html: Path | None, force: bool, quiet: bool, output_format: str) -> int:
    """Show the record RUN of a run: run.json, or the folder that prepare wrote it in.

    \b
    dmlprep report out/
    dmlprep report out/run.json --html out/run.html
    """
    record = api.read_record(run)
    if html is not None:
        from dmlprep.report.html import write_html

        write_html(record, html, force=force)
        echo(f"wrote {html}", err=True)
        return 0
    show_run(record, output_format, quiet=quiet)
    return 0
