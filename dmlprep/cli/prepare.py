"""``dmlprep prepare``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dmlprep.cli.options import (
    device_options,
    feeds_option,
    format_option,
    metric_options,
    recipe_options,
    seconds_option,
)
from dmlprep.cli.output import print_json_text

__all__ = ["command"]


@click.command("prepare")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for model.onnx and run.json, or a path that ends in .onnx.",
)
@recipe_options
@feeds_option
@device_options
@metric_options
@click.option(
    "--bench",
    is_flag=True,
    help="Time the result beside MODEL as it came and with its sizes overridden (docs/speed.md). Decides nothing.",
)
@seconds_option("--bench-seconds", "Timed runs of --bench, all together.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option(
    "--record",
    "record_to",
    type=click.Path(path_type=Path),
    help="Write the run's record here as well, also when the model is refused.",
)
@click.option(
    "--depfile",
    type=click.Path(path_type=Path),
    help="Write the files that the result depends on, in the form that make and ninja read.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@format_option("text", "json")
def command(
    model: Path,
    pins: tuple[str, ...],
    record_to: Path | None,
    depfile: Path | None,
    quiet: bool,
    output_format: str,
    **options: Any,
) -> int:
    """Make MODEL ready for DirectML, prove that it still computes the same, and write it.

    \b
    dmlprep prepare model.onnx -o out/ --pin batch=1
    dmlprep prepare model.onnx -o out/ --recipe @transformer-fp16 --pin batch=1 --pin sequence=128

    Exit codes: 0 written and proved; 1 a step refused the model or parity failed, nothing written;
    2 bad command, recipe or input; 3 a demanded check could not run, or its inputs prove nothing; nothing written.
    """
    from dmlprep import api
    from dmlprep.cli.console import ProgressObserver
    from dmlprep.cli.console import out as console
    from dmlprep.cli.options import read_pins
    from dmlprep.files import check_output
    from dmlprep.report.text import show_record

    for path in filter(None, (record_to, depfile)):
        check_output(path, force=True)
    with ProgressObserver(quiet) as observer:
        record = api.prepare(model, pins=read_pins(pins), observer=observer, **options)
    if record_to is not None:
        api.write_record(record, record_to)
    if depfile is not None and record.exit_code == 0:
        api.write_depfile(record, depfile)
    if output_format == "json":
        print_json_text(record.to_json())
    else:
        show_record(record, console())
    return record.exit_code
