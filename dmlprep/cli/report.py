"""``dmlprep report``."""

from __future__ import annotations

from pathlib import Path

import click

from dmlprep.cli.options import format_option, quiet_option
from dmlprep.cli.output import echo, echo_commands, print_json_text

__all__ = ["command"]


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    help="Write the report as one self-contained HTML file.",
)
@click.option("--force", is_flag=True, help="Replace the HTML file.")
@quiet_option
@format_option("text", "json", "github")
def command(run: Path, html: Path | None, force: bool, quiet: bool, output_format: str) -> int:
    """Show the record RUN of a run: run.json, or the folder that prepare wrote it in.

    \b
    dmlprep report out/
    dmlprep report out/run.json --html out/run.html
    """
    from dmlprep.record import RunRecord

    record = RunRecord.read(run)
    if html is not None:
        from dmlprep.report.html import write_html

        write_html(record, html, force=force)
        echo(f"wrote {html}", err=True)
        return 0
    if output_format == "json":
        print_json_text(record.to_json())
    elif output_format == "github":
        from dmlprep.report.github import annotation_lines

        echo_commands(annotation_lines(record))
    else:
        from dmlprep.cli.bars import out
        from dmlprep.report.brief import show_briefly
        from dmlprep.report.text import show_record

        (show_briefly if quiet else show_record)(record, out())
    return 0
