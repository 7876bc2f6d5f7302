"""``dmlprep tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmlprep import api
from dmlprep.cli.help import Command
from dmlprep.cli.options import (
    DEVICE,
    METRIC,
    PATH,
    completed,
    fit_mode,
    option,
    output_options,
    prepare_options,
    project_options,
    the_project,
)
from dmlprep.cli.output import echo, print_json, say
from dmlprep.cli.values import Number
from dmlprep.core.errors import UsageError
from dmlprep.core.text.shell import command_line
from dmlprep.portable.bounds import MOST_SECONDS

if TYPE_CHECKING:
    from dmlprep.record.tuning import Tuned

_MOST_PROVED = 64

_FROM_KIT = frozenset({"result", "kit", "out", "key", "force", *METRIC, "quiet", "output_format"})
"""Options that apply to ``--from-kit``."""


@click.command("tune", cls=Command)
@click.argument("model", type=PATH, required=False)
@option("-o", "--out", type=PATH, help="File for the best recipe (.toml).")
@option(
    "-r",
    "--recipe NAME",
    "recipes",
    multiple=True,
    help="Recipe to start from: built-in or a .toml file. Repeatable. The search keeps its settings. Default: "
    "@static-fp32, and the recipe that init would choose, or @vision-fp16 if they are equal.",
)
@prepare_options("pins", "settings", "target")
@option(
    "--io",
    type=click.Choice(["keep", "half", "any"]),
    default="keep",
    help="Graph inputs and outputs of FP16 candidates. keep: unchanged. half: FP16. any: try both.",
    rare=True,
)
@option(
    "--only-directml",
    is_flag=True,
    help="Also try operators that the CPU provider cannot run (GroupNorm).",
    rare=True,
)
@option("--offline", is_flag=True, help="Rank by placement alone, and prove nothing.", rare=True)
@option(
    "--search-seconds SECONDS",
    type=Number(0, MOST_SECONDS),
    default=60.0,
    help="Time limit for the ranking. The output names the candidates that were skipped.",
    rare=True,
)
@option(
    "--top N",
    type=click.IntRange(1, _MOST_PROVED),
    default=3,
    help="Largest number of candidates to prove. The best that passes wins; with --bench or --kit, all that pass are "
    "timed.",
    group="Inputs and proof",
    rare=True,
)
@prepare_options("feeds", *DEVICE, *METRIC)
@option(
    "--bench",
    is_flag=True,
    help="Time MODEL and the candidates that passed the proof. Times on a GPU decide; times of a device that computes "
    "on the CPU are only shown.",
    group="Speed",
)
@prepare_options("bench_seconds")
@option(
    "--kit",
    type=PATH,
    help="Prove --top candidates, and pack those that pass into this zip, for a Windows machine to time. With "
    "--from-kit: the zip that you sent.",
)
@option(
    "--from-kit RESULT",
    "result",
    type=PATH,
    help="Choose by the result.zip of that machine, without MODEL. dmlprep compares all outputs again, and the times "
    "of a GPU decide.",
)
@option(
    "--key",
    type=PATH,
    help="Your private key, as for dmlprep kit.",
    rare=True,
)
@option("--force", is_flag=True, help="Replace existing files.")
@project_options
@output_options("text", "json")
def command(
    model: Path | None,
    out: Path | None,
    result: Path | None,
    project_file: Path | None,
    no_project: bool,
    quiet: bool,
    output_format: str,
    **options: Any,
) -> int:
    """Find the best recipe for MODEL on DirectML.

    \b
    dmlprep tune model.onnx --pin batch=1 -o tuned.toml
    dmlprep tune model.onnx --pin batch=1 --bench --device dml --gpu auto
    dmlprep prepare model.onnx -o out/ --recipe tuned.toml
    dmlprep tune --from-kit result.zip --kit kit.zip -o tuned.toml

    dmlprep tries opsets, FP32 and FP16, com.microsoft's operators and fused forms. It ranks them by nodes on the CPU,
    fused partitions, copies between CPU and GPU, and bytes. Then it prepares and proves the best as prepare does.

    Exit codes: 0 found and proved (with --offline: found); 1 no candidate is good. 2 bad command, recipe or input, or a
    result that is damaged, edited, of another kit or not signed. 3 a required check could not run, or its inputs prove
    nothing.
    """
    if result is not None:
        excludes = {param.name or "" for param in click.get_current_context().command.params} - _FROM_KIT
        fit_mode("--from-kit", active=True, excludes=excludes)
        if options["kit"] is None:
            raise UsageError("the kit that you sent is missing", where="--from-kit", fix="add --kit kit.zip")
        tuning = api.choose_kit(result, out=out, **{name: options[name] for name in options.keys() & _FROM_KIT})
        show_tuning(tuning, out, output_format, quiet=quiet)
        return tuning.exit_code
    if model is None:
        raise click.UsageError("Missing argument 'MODEL', or --from-kit RESULT.")
    from dmlprep.cli.console import ProgressObserver

    with ProgressObserver(quiet) as observer:
        project = the_project(project_file, no_project)
        wanted = completed(project, model, options, quiet=quiet)
        tuning = api.tune(model, out=out, observer=observer, **wanted | {"recipes": wanted["recipes"] or None})
    show_tuning(tuning, out, output_format, quiet=quiet)
    if options["kit"] is not None and tuning.exit_code == 0:
        kit, key = options["kit"], options["key"]
        run, then = ["python", "run.py"], ["dmlprep", "tune", "--from-kit", "result.zip", "--kit", kit]
        if key is not None:
            run += ["--key", kit.with_suffix(".run-key").name]
            then += ["--key", key]
        if (metric := wanted["metric"]) is not None:  # of the project file, or as typed
            then += ["--metric", str(getattr(metric, "code", metric))]
        if (bound := wanted["metric_bound"]) is not None:
            then += ["--metric-bound", str(bound)]
        wrote = f"wrote {kit}; there: extract it, install the packages that README.txt names, {command_line(*run)}"
        echo(f"{wrote}; then: {command_line(*then)}", err=output_format == "json")
    return tuning.exit_code


def show_tuning(tuning: Tuned, out: Path | None, output_format: str, *, quiet: bool = False) -> None:
    """Show the table and the recipe, or everything as JSON; ``quiet``: the choice alone."""
    if output_format == "json":
        print_json(tuning)
    else:
        from dmlprep.cli.bars import out as console
        from dmlprep.report.tuning import show_tuned

        show_tuned(tuning, console(), with_recipe=out is None, brief=quiet)
    if out is not None and tuning.chosen and not quiet:
        echo(f"wrote {out}", err=output_format == "json")
    if tuning.error:
        say(tuning.error)
