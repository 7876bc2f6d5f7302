"""``dmlprep prepare``."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dmlprep.api.projects import result_places
from dmlprep.cli.options import (
    DEVICE,
    METRIC,
    RECIPE,
    format_option,
    given_models,
    prepare_options,
    quiet_option,
)
from dmlprep.cli.output import echo, echo_commands, print_error, print_json_text
from dmlprep.cli.project import completed, project_options, the_project
from dmlprep.cli.values import read_bucket

if TYPE_CHECKING:
    from dmlprep.api.types import BucketRun, Project
    from dmlprep.errors import DmlprepError
    from dmlprep.record import RunRecord

__all__ = ["command"]


@click.command("prepare")
@click.argument("models", type=click.Path(path_type=Path), nargs=-1, metavar="[MODEL...]")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for model.onnx and run.json, or a path that ends in .onnx. Several models: each gets a subfolder with "
    "its name. Required unless the project file sets it.",
)
@project_options
@prepare_options(*RECIPE)
@click.option(
    "--bucket",
    "buckets",
    multiple=True,
    metavar="DIM=SIZE,...",
    help="Write a static graph for these sizes. All buckets share one data file (docs/buckets.md), and --pin applies "
    "to each. dmlprep buckets finds sizes from a log.",
)
@prepare_options("feeds", *DEVICE, *METRIC, "vram", "bench", "bench_seconds", "fresh", "external_data", "force")
@click.option(
    "--record",
    "record_to",
    type=click.Path(path_type=Path),
    help="Write the run's record here as well, also when the run fails.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    help="Write an HTML report, also when the model is refused (docs/report.md).",
)
@click.option(
    "--depfile",
    type=click.Path(path_type=Path),
    help="Write a list of the files that the result depends on, with dmlprep's version.",
)
@click.option(
    "--depfile-format",
    type=click.Choice(["make", "lines"]),
    default="make",
    show_default=True,
    help="make: a make rule. lines: one file per line, for MSBuild.",
)
@quiet_option
@format_option("text", "json", "github", "msbuild")
def command(
    models: tuple[Path, ...],
    out: Path | None,
    buckets: tuple[str, ...],
    project_file: Path | None,
    no_project: bool,
    record_to: Path | None,
    html: Path | None,
    depfile: Path | None,
    depfile_format: Literal["make", "lines"],
    quiet: bool,
    output_format: str,
    **options: Any,
) -> int:
    """Make each MODEL ready for DirectML, prove that it still computes the same, and write it.

    \b
    dmlprep prepare model.onnx -o out/ --pin batch=1
    dmlprep prepare model.onnx -o out/ --recipe @transformer-fp16 --pin batch=1 --pin sequence=128
    dmlprep prepare models/*.onnx -o out/ --pin batch=1
    dmlprep prepare model.onnx -o out/ --bucket height=512,width=512 --bucket height=768,width=512
    dmlprep prepare                                         the models of the project file (dmlprep init)

    Exit codes: 0 written and proved; 1 a step refused the model or parity failed, nothing written;
    2 bad command, recipe or input; 3 a required check could not run, or its inputs prove nothing; nothing written.
    Of several models or buckets the worst, in this order: 70, 2, 1, 3, 0; each is prepared. Where one bucket fails,
    none is written.
    """
    from dmlprep import api
    from dmlprep.cli.console import ProgressObserver
    from dmlprep.errors import DmlprepError
    from dmlprep.record.fleet import worst
    from dmlprep.record.hints import command_line

    wanted_buckets = [read_bucket(text) for text in buckets]
    project = the_project(project_file, no_project)
    places = result_places(project, _models(models, project), out)
    _check_views({"--record": record_to, "--html": html, "--depfile": depfile}, len(places) > 1, bool(buckets))
    typed = command_line("dmlprep", *sys.argv[1:])
    records: list[RunRecord] = []
    code = 0
    for model, place in places.items():
        if len(places) > 1 and not quiet and output_format == "text":
            if records or code:
                echo()
            echo(f"{model}:")
        try:
            with ProgressObserver(quiet) as observer:
                wanted = completed(project, model, options, quiet=quiet)
                wanted |= {"observer": observer, "command_line": typed}
                if buckets:
                    # They go over what the project file pins.
                    named = {name for sizes in wanted_buckets for name in sizes} - set(options["pins"])
                    wanted["pins"] = {name: value for name, value in wanted["pins"].items() if name not in named}
                    run = api.prepare_buckets(model, out=place, buckets=wanted_buckets, **wanted)
                else:
                    record = api.prepare(model, out=place, **wanted)
        except DmlprepError as error:
            if record_to is not None:
                _write_error(error, model, record_to, options)
            if output_format == "msbuild":
                from dmlprep.report import msbuild

                echo_commands([msbuild.error_line(error, str(model))])
            elif len(places) == 1:
                raise
            else:
                print_error(error)
            code = worst((code, error.exit_code))
            continue
        if buckets:
            code = worst((code, run.exit_code))
            records += run.records.values()
            _show_buckets(run, place, quiet, output_format)
            continue
        _write_views(record, record_to, html, depfile, depfile_format)
        code = worst((code, record.exit_code))
        records.append(record)
        _show(record, quiet, output_format)
    if output_format == "json":
        _print_json(records, several=len(places) > 1 or bool(buckets))
    elif len(places) > 1 and not buckets and not quiet and output_format == "text":
        _summarize(records, len(places))
    return code


def _check_views(single: dict[str, Path | None], several: bool, buckets: bool) -> None:
    from dmlprep.files import check_output

    given = {option: path for option, path in single.items() if path is not None}
    if given and (several or buckets):
        what = "model" if several else "bucket"
        raise click.UsageError(f"{next(iter(given))} takes one {what}: each record is beside its result.")
    for path in given.values():
        check_output(path, force=True)


def _write_views(
    record: RunRecord, to: Path | None, html: Path | None, depfile: Path | None, form: Literal["make", "lines"]
) -> None:
    from dmlprep import api

    if to is not None:
        api.write_record(record, to)
    if html is not None:
        from dmlprep.report.html import write_html

        write_html(record, html, force=True)
    if depfile is not None and record.exit_code == 0:
        api.write_depfile(record, depfile, form)


def _write_error(error: DmlprepError, model: Path, to: Path, options: dict[str, Any]) -> None:
    """Write the record of a run that came to no outcome; what is read of it is the error."""
    from dmlprep import api
    from dmlprep._version import __version__
    from dmlprep.errors import OutputError, UsageError
    from dmlprep.record import RunError, RunRecord

    record = RunRecord("prepare", str(model), version=__version__, exit_code=error.exit_code, error=RunError.of(error))
    with contextlib.suppress(UsageError):  # an option is what is wrong
        record.options = api.PrepareOptions(**options).chosen
    with contextlib.suppress(OutputError):  # the error of the run goes before that of a record that cannot be written
        api.write_record(record, to)


def _show_buckets(run: BucketRun, out: Path, quiet: bool, output_format: str) -> None:
    from dmlprep.record.sizes import bytes_text

    for index, (name, record) in enumerate(run.records.items()):
        if output_format == "text" and not quiet:
            if index:
                echo()
            echo(f"bucket {name}:")
        _show(record, quiet, output_format)
    if output_format != "text":
        return
    if not quiet:
        echo()
    if run.written is None:
        echo(f"no bucket is written, because {', '.join(run.failed)} failed")
        return
    data, count = run.written.data, len(run.written.buckets)
    each = sum(one.data_bytes for one in run.written.buckets)
    text = f", their {bytes_text(each)} of weights in {data.file} of {bytes_text(data.bytes)}" if data else ""
    echo(f"wrote {out}: {count} {'bucket' if count == 1 else 'buckets'}{text}")


def _models(given: tuple[Path, ...], project: Project | None) -> list[Path]:
    """Those that are named; none for those of the project file."""
    if not given and project is None:
        raise click.UsageError("Missing argument 'MODEL', and no project file is here (dmlprep init writes one).")
    return list(dict.fromkeys(given_models(given)))


def _show(record: RunRecord, quiet: bool, output_format: str) -> None:
    if output_format == "github":
        from dmlprep.report.github import annotation_lines

        echo_commands(annotation_lines(record))
    elif output_format == "msbuild":
        from dmlprep.report import msbuild

        echo_commands(msbuild.lines(record))
    elif output_format == "text":
        from dmlprep.cli.bars import out as console
        from dmlprep.report.brief import show_briefly
        from dmlprep.report.text import show_record

        (show_briefly if quiet else show_record)(record, console())


def _print_json(records: list[RunRecord], *, several: bool) -> None:
    if not several:
        print_json_text(records[0].to_json())
        return
    from dmlprep.record.documents import to_json

    print_json_text(to_json(records))


def _summarize(records: list[RunRecord], count: int) -> None:
    from dmlprep.report.brief import prepared_line

    good = [record for record in records if record.exit_code == 0]
    echo()
    echo(f"{len(good)} of {count} models are ready")
    for record in records:
        echo(f"  {prepared_line(record)}" if record.exit_code == 0 else f"  {record.input}: NOT written")
