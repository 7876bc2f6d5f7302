"""``dmlprep bench``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmlprep import api
from dmlprep.api.records import as_record
from dmlprep.cli.help import Command
from dmlprep.cli.options import (
    ADAPTER,
    PATH,
    device_option,
    option,
    output_options,
    parsed,
    prepare_options,
    sizes_option,
    time_limit_option,
    verbose_option,
)
from dmlprep.cli.output import echo, echo_lines, print_json, progress_line, say
from dmlprep.cli.values import Number, read_sizes
from dmlprep.core.text.shell import command_line
from dmlprep.portable.bounds import MOST_RUNS, MOST_SECONDS

if TYPE_CHECKING:
    from dmlprep.record.speed import Bench


@click.command("bench", cls=Command)
@click.argument("models", nargs=-1, required=True, type=PATH)
@prepare_options("feeds")
@device_option("Device on which the models run.")
@prepare_options(*ADAPTER)
@option(
    "-p",
    "--pin DIM=SIZE",
    "pins",
    multiple=True,
    callback=parsed(read_sizes),
    help="Override a dimension in the sessions, by name (batch=1) or by input and axis (x:0=1).",
)
@sizes_option
@option(
    "--seconds SECONDS",
    type=Number(0, MOST_SECONDS),
    default=10.0,
    help="Total time for the runs of all models.",
    group="Speed",
)
@option(
    "--runs N",
    type=click.IntRange(1, MOST_RUNS),
    default=10,
    help="Smallest number of timed runs for each model, even if they exceed --seconds.",
    group="Speed",
)
@time_limit_option(600.0, "Time limit for one load or run.")
@option(
    "--html",
    type=PATH,
    help="Write a report as one HTML file, with a chart.",
    group="Output",
)
@option("--force", is_flag=True, help="Replace the HTML file.")
@verbose_option
@output_options("text", "json")
def command(
    models: tuple[Path, ...],
    html: Path | None,
    force: bool,
    verbose: bool,
    quiet: bool,
    output_format: str,
    **options: Any,
) -> int:
    """Time MODELS side by side, on the same inputs.

    \b
    dmlprep bench model.onnx out/model.onnx --device dml
    dmlprep bench model.onnx --pin batch=1 --seconds 30

    dmlprep loads all models together and runs them in turn. Ratios are relative to the first model. On a GPU, the lower
    bound is the least time that a run can take; dmlprep measures the speed of the GPU once for it.

    Exit codes: 0 all models ran; 2 bad command or input; 3 a model did not run, or the device is not available.
    """
    from dmlprep.core.files import check_output

    if html is not None:
        check_output(html, force=force)
    with progress_line(quiet) as progress:
        measurement = api.bench(*models, progress=progress, **options)
    _show(measurement, output_format, quiet, verbose)
    if html is not None:
        from dmlprep.report.html import write_html

        record = as_record(measurement, command_line=command_line("dmlprep", *sys.argv[1:], whole=True))
        write_html(record, html, force=force)
        echo(f"wrote {html}", err=True)
    for one in measurement.models:
        if one.not_run and output_format == "json":
            say(f"{one.name} did not run: {one.not_run}")
    return measurement.exit_code


def _show(measurement: Bench, output_format: str, quiet: bool, verbose: bool) -> None:
    if output_format == "json":
        print_json(measurement)
        return
    if quiet:
        from dmlprep.report.speed import brief_lines

        echo_lines(brief_lines(measurement))
        return
    from dmlprep.cli.bars import out
    from dmlprep.report.speed import show_bench

    show_bench(measurement, out(), verbose=verbose)
    if not verbose:
        echo("details: -v, or the report (--html FILE)")
