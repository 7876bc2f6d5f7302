"""``dmlprep check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmlprep.api.checking import explain_node
from dmlprep.api.projects import file_options
from dmlprep.cli.options import (
    ADAPTER,
    PATH,
    fit_mode,
    given_models,
    option,
    output_options,
    prepare_options,
    project_options,
    targets,
    the_project,
)
from dmlprep.cli.output import echo, echo_commands, echo_lines, print_error, print_json, print_json_text
from dmlprep.core.errors import DmlprepError, UsageError
from dmlprep.portable.printable import printable

if TYPE_CHECKING:
    from dmlprep.api.types import Examined, Project


@click.command("check")
@click.argument("models", type=PATH, nargs=-1, required=True, metavar="MODEL...")
@option(
    "--target NAME",
    "target_name",
    shell_complete=targets,
    help="DirectML release (dmlprep explain targets), or all for a table of all releases. Default: the release in the "
    "project file, otherwise latest.",
)
@option(
    "--fail-on-cpu",
    is_flag=True,
    help="Exit 1 if a compute node would run on the CPU. Shape arithmetic is allowed there.",
)
@option("--verify", is_flag=True, help="Also open a real DirectML session, and compare its placement.")
@option("--node NAME", help="Explain the placement of this node of one MODEL: each rule, and the advice.")
@prepare_options("vram", *ADAPTER)
@project_options
@output_options("text", "json", "sarif", "github")
def command(
    models: tuple[Path, ...],
    target_name: str | None,
    node: str | None,
    vram: str | None,
    project_file: Path | None,
    no_project: bool,
    quiet: bool,
    output_format: str,
    **options: Any,
) -> int:
    """Show which nodes of each MODEL DirectML runs, and why not the others. Edits nothing, reads no weights.

    \b
    dmlprep check model.onnx
    dmlprep check model.onnx --target all
    dmlprep check models/*.onnx --fail-on-cpu --format sarif > placement.sarif
    dmlprep check model.onnx --node /layer1/Conv

    Exit codes: 0 good; 1 a finding is an error, or a limit is exceeded (--fail-on-cpu, --vram). 2 bad input; 3 --verify
    has no DirectML session, or --vram cannot be checked. Each model is checked; the worst code counts,
    in this order: 70, 2, 1, 3, 0.
    """
    from dmlprep.api.checking import examine
    from dmlprep.record.fleet import worst

    fit_mode("--node", node is not None, excludes=("fail_on_cpu", "verify", "vram", *ADAPTER))
    project = the_project(project_file, no_project)
    if node is not None:
        return _explain(given_models(models), node, target_name, project, output_format, quiet=quiet)
    checked: list[list[Examined]] = []
    code = 0
    paths = given_models(models)
    for path in paths:
        try:
            theirs = file_options(project, path)
            target = target_name or theirs.get("target", "latest")
            rows = examine(path, target, vram=vram or theirs.get("vram"), **options)
        except DmlprepError as error:
            if len(paths) == 1:
                raise
            print_error(error)
            code = worst((code, error.exit_code))
        else:
            checked.append(rows)
            newest = rows[-1].record
            code = worst((code, newest.exit_code))
            if newest.error:
                echo(f"{printable(newest.input)}: {newest.error}", err=True)
    if quiet and output_format == "text":
        from dmlprep.record.run_record import brief_line

        echo_lines(brief_line(rows[-1].record) for rows in checked)
    else:
        _show(checked, output_format, every=target_name == "all", several=len(paths) > 1)
    return code


def _explain(
    paths: list[Path], node: str, target: str | None, project: Project | None, output_format: str, *, quiet: bool
) -> int:
    if len(paths) > 1 or target == "all" or output_format not in ("text", "json"):
        fix = "one MODEL, one --target, and --format text or json"
        raise UsageError("this explains one node of one model for one release", where="--node", fix=f"pass {fix}")
    path = paths[0]
    target = target or file_options(project, path).get("target", "latest")
    lines = explain_node(path, node, target=target).splitlines()
    if output_format == "json":
        print_json({"model": str(path), "node": node, "target": target, "lines": lines})
    else:
        echo_lines([one for one in lines if one.startswith("-> ")] if quiet else lines)
    return 0


def _show(checked: list[list[Examined]], output_format: str, *, every: bool, several: bool) -> None:
    if output_format == "json":
        from dmlprep.report import placement_json

        most = max(1, placement_json.NODES // max(1, sum(map(len, checked))))
        objects = [[placement_json.to_object(r.record, r.placement, most) for r in rows] for rows in checked]
        print_json_text(placement_json.render(objects, several=several))
    elif output_format == "sarif":
        from dmlprep.report import sarif

        print_json_text(sarif.render([r.record for rows in checked for r in rows]))
    elif output_format == "github":
        from dmlprep.report import github

        echo_commands(line for rows in checked for r in rows for line in github.annotation_lines(r.record))
    else:
        from dmlprep.report.placement_text import by_release, lines

        texts = [
            by_release(rows[0].record.input, [(r.target, r.record, r.placement) for r in rows])
            if every
            else lines(rows[0].record, rows[0].placement, rows[0].target)
            for rows in checked
        ]
        for number, text in enumerate(texts):
            echo_lines(["", *text] if number else text)
