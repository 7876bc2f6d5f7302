"""``dmlprep report``."""

from __future__ import annotations

from pathlib import Path

import click

from dmlprep.cli.options import format_option
from dmlprep.errors import InputError

__all__ = ["command"]


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    help="Write the report as one HTML file, with nothing loaded from elsewhere.",
)
@click.option("--force", is_flag=True, help="Replace the HTML file.")
@format_option("text", "json")
def command(run: Path, html: Path | None, force: bool, output_format: str) -> int:
    """Show the record RUN (run.json) of a run.

    \b
    dmlprep report out/run.json
    dmlprep report out/run.json --html out/run.html
    """
    import msgspec

    from dmlprep.record import RunRecord

    try:
        record = RunRecord.from_json(run.read_bytes())
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(
            f"not a run record: {error}", where=str(run), fix="pass the run.json that prepare wrote"
        ) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(run), fix="check the path") from error
    if html is not None:
        from dmlprep.report.html import write_html

        write_html(record, html, force=force)
        click.echo(f"wrote {html}", err=True)
        return 0
    if output_format == "json":
        click.echo(record.to_json(), nl=False)
    else:
        from dmlprep.cli.console import out
        from dmlprep.cli.tables import show_record

        show_record(record, out())
    return 0
