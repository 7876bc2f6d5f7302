"""``dmlprep prepare``."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dmlprep import api
from dmlprep.api.projects import result_places
from dmlprep.cli.bucket_log import bucket_log_options, choose_buckets
from dmlprep.cli.help import Command
from dmlprep.cli.options import (
    DEVICE,
    METRIC,
    PATH,
    RECIPE,
    completed,
    fit_mode,
    given_models,
    option,
    output_options,
    prepare_options,
    project_options,
    the_project,
    verbose_option,
)
from dmlprep.cli.output import echo, echo_commands, echo_lines, print_error, print_json, show_run
from dmlprep.cli.values import read_bucket
from dmlprep.core._version import __version__
from dmlprep.core.errors import DmlprepError, OutputError, UsageError
from dmlprep.core.files import check_output

if TYPE_CHECKING:
    from dmlprep.api.types import BucketRun
    from dmlprep.record import RunRecord


@click.command("prepare", cls=Command)
@click.argument("models", type=PATH, nargs=-1, metavar="[MODEL...]")
@option(
    "-o",
    "--out",
    type=PATH,
    help="Folder for model.onnx and run.json, or a path that ends in .onnx. Several models: each gets a subfolder with "
    "its name. Default: as the project file sets it, otherwise build/models/NAME.",
)
@project_options
@prepare_options(*RECIPE)
@option(
    "--bucket DIM=SIZE,...",
    "buckets",
    multiple=True,
    callback=lambda context, option, texts: [read_bucket(text) for text in texts],
    help="Write a static graph for these sizes. All buckets share one file of weights (docs/buckets.md), and --pin "
    "applies to each. Small weights are in the models.",
)
@bucket_log_options
@prepare_options("feeds", *DEVICE, *METRIC, "vram", "bench", "bench_seconds", "fresh", "external_data", "force")
@option(
    "--record",
    "record_to",
    type=PATH,
    help="Write the run's record here as well, also when the run fails.",
    group="Output",
    rare=True,
)
@option(
    "--html",
    type=PATH,
    help="Write an HTML report, also when the model is refused (docs/report.md).",
    group="Output",
    rare=True,
)
@option(
    "--depfile",
    type=PATH,
    help="Write a list of the files that the result depends on, with dmlprep's version.",
    group="Output",
    rare=True,
)
@option(
    "--diff",
    type=PATH,
    metavar="OLD",
    help="Show the changes since an earlier run: its run.json or folder.",
    group="Output",
    rare=True,
)
@option(
    "--depfile-format",
    type=click.Choice(["make", "lines"]),
    default="make",
    help="make: a make rule. lines: one file per line, for MSBuild.",
    group="Output",
    rare=True,
)
@output_options("text", "json", "github", "msbuild")
@verbose_option
def command(
    models: tuple[Path, ...],
    out: Path | None,
    buckets: list[dict[str, int]],
    log: Path | None,
    list_only: bool,
    diff: Path | None,
    project_file: Path | None,
    no_project: bool,
    quiet: bool,
    verbose: bool,
    output_format: str,
    **options: Any,
) -> int:
    """Make each MODEL ready for DirectML, prove that it still computes the same, and write it.

    \b
    dmlprep prepare model.onnx -o out/ --pin batch=1
    dmlprep prepare model.onnx -o out/ --recipe @transformer-fp16 --pin batch=1 --pin sequence=128
    dmlprep prepare models/*.onnx -o out/ --pin batch=1
    dmlprep prepare model.onnx -o out/ --bucket height=512,width=512 --bucket height=768,width=512
    dmlprep prepare model.onnx -o out/ --bucket-log sizes.log --bucket-count 3
    dmlprep prepare model.onnx -o out/ --pin batch=1 --force --diff out/
    dmlprep prepare                                         the models of the project file (dmlprep init)

    Exit codes: 0 written, and all required checks passed; 1 the model was refused, parity failed, or DirectML is known
    to fail on the result and did not run it. 2 bad command, recipe or input. 3 a required check could not run, or its
    inputs prove nothing. With 1, 2 and 3, nothing is written. For several models or buckets: the worst, in the order
    70, 2, 1, 3, 0. All are tried; if one bucket fails, none is written.
    """
    from dmlprep.cli.console import ProgressObserver
    from dmlprep.core.text.shell import command_line
    from dmlprep.record.fleet import worst

    fit_mode("--bucket-list", list_only, excludes=("record_to", "html", "depfile", "depfile_format", "diff"))
    if list_only and output_format not in ("text", "json"):
        raise UsageError("--bucket-list needs --format text or json", fix="remove --format")
    chosen = choose_buckets(log, options)
    if chosen is not None:
        if list_only:
            chosen.show_list(output_format, quiet=quiet)
            return 0
        buckets = chosen.buckets
    project = the_project(project_file, no_project)
    if not models and project is None:
        raise click.UsageError("Missing argument 'MODEL', and no project file (dmlprep init writes one).")
    places = result_places(project, list(dict.fromkeys(given_models(models))), out)
    several = len(places) > 1
    if diff is not None and (several or buckets or output_format not in ("text", "json")):
        raise click.UsageError("--diff needs a single model without --bucket, and --format text or json.")
    # Before the run, which may replace it.
    earlier = None if diff is None else api.read_record(diff)
    if earlier is not None:
        api.diff_records(earlier, earlier)  # an error if it is of another command
    views = _Views(*(options.pop(name) for name in ("record_to", "html", "depfile", "depfile_format")))
    views.check("model" if several else "bucket" if buckets else "")
    in_full = not quiet and output_format == "text"
    if chosen is not None and in_full:
        chosen.show()
        echo()
    typed = command_line("dmlprep", *sys.argv[1:], whole=True)
    records: list[RunRecord] = []
    code = 0
    for model, place in places.items():
        if several and in_full:
            if records or code:
                echo()
            echo(f"{model}:")
        try:
            with ProgressObserver(quiet) as observer:
                wanted = completed(project, model, options, quiet=quiet)
                wanted |= {"out": place, "observer": observer, "command_line": typed}
                if buckets:
                    # They override pins of the project file.
                    named = {name for sizes in buckets for name in sizes} - set(options["pins"])
                    wanted["pins"] = {name: value for name, value in wanted["pins"].items() if name not in named}
                    run = api.prepare_buckets(model, buckets=buckets, **wanted)
                else:
                    record = api.prepare(model, **wanted)
        except DmlprepError as error:
            views.write_error(error, model, options)
            _show_error(error, model, output_format, several=several)
            code = worst((code, error.exit_code))
            continue
        if buckets:
            records += run.records.values()
            _show_buckets(run, place, output_format, quiet=quiet, verbose=verbose)
        else:
            views.write(record)
            records.append(record)
            if output_format != "json":
                show_run(record, output_format, quiet=quiet, verbose=verbose)
        code = worst((code, run.exit_code if buckets else record.exit_code))
    changes = api.diff_records(earlier, records[0]) if earlier is not None else None
    if output_format == "json":
        documents = [one.document() for one in records]
        if changes is not None:
            from msgspec import to_builtins

            print_json({**to_builtins(documents[0]), "changes": to_builtins(changes)})
        else:
            print_json(documents if several or buckets else documents[0])
    elif changes is not None:
        from dmlprep.report.changes import change_lines

        echo_lines([*([] if quiet else [""]), *change_lines(changes, str(diff))])
    elif several and not buckets and in_full:
        _summarize(records, len(places))
    return code


def _show_error(error: DmlprepError, model: Path, output_format: str, *, several: bool) -> None:
    """Print the error of a model if there are ``several`` or the format is MSBuild's; otherwise raise it."""
    if output_format == "msbuild":
        from dmlprep.report import msbuild

        echo_commands([msbuild.error_line(error, str(model))])
    elif several:
        print_error(error)
    else:
        raise error


@dataclass(frozen=True)
class _Views:
    """Files that a run of one model also writes, if the user names them."""

    record: Path | None
    html: Path | None
    depfile: Path | None
    depfile_format: Literal["make", "lines"]

    def check(self, several: str) -> None:
        """Raise an error for paths that cannot be written, or for any path if there are several runs.

        ``several`` names what the runs differ in (``model``); it is empty for one run.
        """
        named = {"--record": self.record, "--html": self.html, "--depfile": self.depfile}
        for name, path in named.items():
            if path is not None:
                if several:
                    raise click.UsageError(f"{name} needs a single {several}: each record is next to its result.")
                check_output(path, force=True)

    def write(self, record: RunRecord) -> None:
        """Write the files of a finished run; the depfile only if the run's exit code is 0."""
        if self.record is not None:
            api.write_record(record, self.record)
        if self.html is not None:
            from dmlprep.report.html import write_html

            write_html(record, self.html, force=True)
        if self.depfile is not None and record.exit_code == 0:
            api.write_depfile(record, self.depfile, self.depfile_format)

    def write_error(self, error: DmlprepError, model: Path, options: dict[str, Any]) -> None:
        """Write the record of a run that ended with an error, if the user set ``--record``."""
        from dmlprep.record import RunError, RunRecord

        if self.record is None:
            return
        why = RunError.of(error)
        record = RunRecord("prepare", str(model), version=__version__, exit_code=error.exit_code, error=why)
        with contextlib.suppress(UsageError):  # an invalid option
            record.options = api.PrepareOptions(**options).chosen
        # the error of the run is more important than a record that cannot be written
        with contextlib.suppress(OutputError):
            api.write_record(record, self.record)


def _show_buckets(run: BucketRun, out: Path, output_format: str, *, quiet: bool, verbose: bool) -> None:
    from dmlprep.core.text.sizes import bytes_text, count_text

    for index, (name, record) in enumerate(run.records.items()):
        if output_format == "text" and not quiet:
            if index:
                echo()
            echo(f"bucket {name}:")
        if output_format != "json":  # all of them are one document
            show_run(record, output_format, quiet=quiet, verbose=verbose)
    if output_format != "text":
        return
    if not quiet:
        echo()
    if run.written is None:
        echo(f"no bucket is written, because {', '.join(run.failed)} failed")
        return
    data, count = run.written.data, count_text(len(run.written.buckets), "bucket")
    each = sum(one.data_bytes for one in run.written.buckets)
    text = f", their {bytes_text(each)} of weights in {data.file} of {bytes_text(data.bytes)}" if data else ""
    echo(f"wrote {out}: {count}{text}")


def _summarize(records: list[RunRecord], count: int) -> None:
    from dmlprep.record.run_record import brief_line

    good = [record for record in records if record.exit_code == 0]
    echo()
    echo(f"wrote {len(good)} of {count} models")
    for record in records:
        echo(f"  {brief_line(record)}")
