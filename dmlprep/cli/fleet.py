"""``dmlprep fleet``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmlprep import api
from dmlprep.api.projects import job_memory
from dmlprep.cli.help import Command
from dmlprep.cli.options import PATH, option, output_options
from dmlprep.cli.output import echo, echo_commands, echo_lines, print_json, print_json_text
from dmlprep.core.text.sizes import bytes_text, count_text

if TYPE_CHECKING:
    from dmlprep.api.types import Job
    from dmlprep.record.fleet import FleetRecord

_MOST_JOBS = 1024


@click.command("fleet", cls=Command)
@click.argument("file", type=PATH, required=False)
@option("-o", "--out", type=PATH, help="Folder for all results. Default: as FILE sets it, otherwise build/models.")
@option(
    "-j",
    "--jobs N",
    type=click.IntRange(1, _MOST_JOBS),
    help="Parallel jobs. Default: one per processor, or fewer if memory is short.",
)
@option(
    "--scheduler ADDRESS",
    default="",
    help="Run the jobs on the workers of this Dask scheduler (tcp://HOST:PORT). They need the same folders.",
)
@option("--only PATTERN", multiple=True, help="Run only jobs with this name or model. Repeatable.")
@option("--shard PART/PARTS", default="", help="Run one part of the jobs, such as 3/8, for CI.")
@option("--dry-run", is_flag=True, help="Show the jobs, and run nothing.")
@option("--fresh", is_flag=True, help="Ignore cached results and verdicts: run every job again.")
@option("--force", is_flag=True, help="Replace existing files that no fleet wrote.")
@option(
    "--prune",
    is_flag=True,
    help="Afterwards remove the results of jobs that are no longer in the file. --dry-run lists them.",
)
@output_options("text", "json", "github", "azure")
def command(
    file: Path | None,
    out: Path | None,
    only: tuple[str, ...],
    shard: str,
    prune: bool,
    dry_run: bool,
    quiet: bool,
    output_format: str,
    **options: Any,
) -> int:
    """Prepare the models of the project file, each with all its recipes, targets and sizes (docs/fleet.md).

    FILE is the project file; by default the one that prepare reads.

    \b
    dmlprep fleet --dry-run                 list the jobs
    dmlprep fleet                           run the jobs that are new or have changed
    dmlprep fleet --only 'detector/*' --fresh
    dmlprep fleet --shard 3/8 --format github
    dmlprep fleet --scheduler tcp://10.0.0.1:8786

    Each job writes to a folder with its name. The folder of all results also has fleet.json, fleet.md, index.html,
    fleet.sarif and junit.xml.

    The exit code is the worst of all jobs, in this order: 70 a bug; 2 bad command, recipe or input; 1 a model was
    refused or its parity failed. 3 a required check could not run; 0 good. 130 after Ctrl-C: the next run continues.
    """
    from dmlprep.cli.console import FleetProgress

    if prune and (only or shard):
        raise click.UsageError("--prune needs all jobs of the project file: remove --only and --shard.")
    if dry_run and prune:
        _show_gone(api.gone_fleet_jobs(file, out=out), quiet, output_format)
        return 0
    if dry_run:
        _show_jobs(api.plan_fleet(file, only=only, shard=shard), quiet, output_format)
        return 0
    with FleetProgress(quiet) as observer:
        record = api.prepare_fleet(file, out=out, only=only, shard=shard, prune=prune, observer=observer, **options)
    _show(record, quiet, output_format)
    return record.exit_code


def _show(record: FleetRecord, quiet: bool, output_format: str) -> None:
    if output_format == "json":
        print_json_text(record.to_json())
    elif output_format in ("github", "azure"):
        from dmlprep.report.azure import job_issues
        from dmlprep.report.fleet import counted
        from dmlprep.report.github import job_lines

        lines = job_lines if output_format == "github" else job_issues
        echo_commands(lines(record, [(Path(record.file).parent / job.model).as_posix() for job in record.jobs]))
        echo(counted(record), err=True)
    else:
        from dmlprep.cli.bars import out
        from dmlprep.report.fleet import show_fleet

        show_fleet(record, out(), brief=quiet)


def _show_jobs(jobs: list[Job], quiet: bool, output_format: str) -> None:
    """Print the jobs of the fleet; ``quiet``: only their number."""
    if output_format == "json":
        print_json({"jobs": [_as_json(job) for job in jobs]})
        return
    if quiet:
        echo(count_text(len(jobs), "job"))
        return
    from rich.text import Text

    from dmlprep.cli.bars import out
    from dmlprep.core.text.documents import toml_value
    from dmlprep.report.tables import show_table

    rows = []
    for job in jobs:
        pins = " ".join(f"{name}={toml_value(value)}" for name, value in job.pins.items())
        rows.append((job.name, job.written, job.target, bytes_text(job_memory(job)), pins))
    console = out()
    show_table(console, ("job", "recipe", "target", "memory", "pins"), rows, left_aligned=("recipe", "target", "pins"))
    console.print()
    console.print(Text(count_text(len(jobs), "job"), style="bold"))


def _show_gone(names: list[str], quiet: bool, output_format: str) -> None:
    """Print the names of jobs that the file no longer has; ``quiet``: only their number."""
    if output_format == "json":
        print_json({"gone": names})
    elif quiet:
        echo(count_text(len(names), "job"))
    else:
        echo_lines([*names, f"{count_text(len(names), 'job')} no longer in the file"])


def _as_json(job: Job) -> dict[str, object]:
    return {
        "name": job.name,
        "model": job.shown,
        "recipe": job.written,
        "target": job.target,
        "size": job.size,
        "pins": job.pins,
        "memory": job_memory(job),
    }
