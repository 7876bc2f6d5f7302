"""``dmlprep bisect``."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmlprep import api
from dmlprep.api.records import as_record, write_record
from dmlprep.cli.help import Command
from dmlprep.cli.options import (
    ADAPTER,
    PATH,
    default_out,
    device_option,
    optimization_option,
    option,
    output_options,
    prepare_options,
    sizes_option,
    time_limit_option,
)
from dmlprep.cli.output import echo, print_json, progress_line
from dmlprep.core.text.shell import command_line

if TYPE_CHECKING:
    from dmlprep.api.types import Bisection


@click.command("bisect", cls=Command)
@click.argument("reference", type=PATH)
@click.argument("candidate", type=PATH, required=False)
@option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for a model of the nodes, its inputs and expected outputs, a script and a draft of an issue. "
    "Default: build/bisect/NAME.",
)
@prepare_options("feeds")
@device_option("Where CANDIDATE runs; REFERENCE runs on the CPU. Default: dml for one model, cpu for two.", None)
@prepare_options(*ADAPTER)
@option(
    "--tolerance NAME",
    default="auto",
    help="Named tolerance (docs/parity.md), or rel:0.001.",
    group="Inputs and proof",
)
@sizes_option
@optimization_option("Graph optimisation level of the candidate's sessions.")
@option(
    "--unfused",
    is_flag=True,
    help="Turn off fusion: DirectML runs each node separately.",
    group="Device",
)
@option(
    "--matrix",
    is_flag=True,
    help="First try the whole candidate under each optimisation and fusion setting.",
    group="Device",
)
@time_limit_option(600.0, "Time limit for one load or run.")
@option(
    "--record",
    "record_to",
    type=PATH,
    help="Write the record of the run as JSON (dmlprep report).",
    group="Output",
    rare=True,
)
@option(
    "--html",
    type=PATH,
    help="Write an HTML report that shows the error along the model.",
    group="Output",
)
@option("--force", is_flag=True, help="Replace existing files.")
@output_options("text", "json")
def command(
    reference: Path,
    candidate: Path | None,
    record_to: Path | None,
    html: Path | None,
    quiet: bool,
    output_format: str,
    **options: Any,
) -> int:
    """Find the first node where CANDIDATE and REFERENCE differ, on the same input.

    \b
    dmlprep bisect original.onnx prepared.onnx         what did preparing change?
    dmlprep bisect model.onnx --device dml             where does DirectML differ from the CPU?
    dmlprep bisect model.onnx --device dml --html error.html

    Exit codes: 0 the models agree; 1 a node that differs was found; 2 bad input; 3 the comparison could not run.
    """
    from dmlprep.core.files import check_output
    from dmlprep.core.files.outputs import stem_of

    options["out"] = options["out"] or default_out("bisect", stem_of(reference))
    pictured = [path for path in (record_to, html) if path is not None]
    for path in pictured:
        check_output(path, force=options["force"])
    with progress_line(quiet) as progress:
        bisection = api.bisect(reference, candidate, along=bool(pictured), progress=progress, **options)
    if quiet and output_format == "text":
        echo(_outcome(bisection))
    else:
        _show(bisection, output_format)
    _write(bisection, record_to, html, force=options["force"])
    return bisection.exit_code


def _write(bisection: Bisection, record_to: Path | None, html: Path | None, *, force: bool) -> None:
    if record_to is None and html is None:
        return
    record = as_record(bisection, command_line=command_line("dmlprep", *sys.argv[1:], whole=True))
    if record_to is not None:
        write_record(record, record_to, force=force)
    if html is not None:
        from dmlprep.report.html import write_html

        write_html(record, html, force=force)


def _outcome(bisection: Bisection) -> str:
    return f"{bisection.outcome}: {bisection.reason}" + (" [DP706]" if bisection.outcome == "found" else "")


_FIELDS = (
    *("outcome", "reason", "kind", "nodes", "op_types", "sources", "values", "hidden", "reproduced", "on_cpu", "runs"),
    *("total_nodes", "device", "tolerance", "along", "bound", "settings", "files"),
)
"""Attributes of a bisection, in their order in JSON."""


def _show(bisection: Bisection, output_format: str) -> None:
    if output_format == "json":
        import msgspec

        data: dict[str, Any] = {name: getattr(bisection, name) for name in _FIELDS}
        data["sources"] = msgspec.to_builtins(bisection.sources)
        data["values"] = msgspec.to_builtins(bisection.values)
        data["device"] = str(bisection.device or "")
        data["along"] = [
            {"value": s.value, "node": s.node, "place": s.place, "error": s.error if s.error < math.inf else None}
            for s in bisection.along
        ]
        data["settings"] = [{"name": s.name, "outcome": s.verdict.outcome, "text": s.text} for s in bisection.settings]
        data["files"] = [str(path) for path in bisection.files]
        print_json(data)
        return
    for setting in bisection.settings:
        echo(f"  {setting.name:28} {setting.verdict.outcome:8} {setting.text}")
    echo(_outcome(bisection))
    for metrics in bisection.values[:5]:
        echo(
            f"  {metrics.output}: max abs {metrics.max_abs:.4g}, max|d|/max|ref| {metrics.max_rel:.4g}, "
            f"cosine {metrics.cosine:.6f}, not finite {metrics.non_finite}"
        )
    if bisection.runs:
        echo(f"  {bisection.runs} runs, {bisection.total_nodes} nodes, on {bisection.device}, {bisection.tolerance}")
    if bisection.files:
        echo(f"  written: {', '.join(str(path) for path in bisection.files)}")
