"""``dmlprep check``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from dmlprep import api
from dmlprep.api.checking import explain_node
from dmlprep.api.devices import default_target
from dmlprep.api.projects import file_options
from dmlprep.cli.help import Command
from dmlprep.cli.options import (
    ADAPTER,
    PATH,
    completed,
    fit_mode,
    given_models,
    option,
    output_options,
    prepare_options,
    project_options,
    targets,
    the_project,
    verbose_option,
)
from dmlprep.cli.output import (
    echo,
    echo_coloured,
    echo_commands,
    echo_lines,
    print_error,
    print_json,
    print_json_text,
)
from dmlprep.core.errors import DmlprepError, UsageError
from dmlprep.core.text.documents import toml_value
from dmlprep.portable.printable import printable

if TYPE_CHECKING:
    from dmlprep.api.types import Examined, Project
    from dmlprep.record.outlook import Outlook


_ONLY_CHECK = ("fail_on_cpu", "verify", "vram", *ADAPTER)
_ONLY_PLAN = ("recipe", "pins", "settings")


@click.command("check", cls=Command)
@click.argument("models", type=PATH, nargs=-1, required=True, metavar="MODEL...")
@option(
    "--target NAME",
    shell_complete=targets,
    help="DirectML release (dmlprep explain targets), or all for a table of all releases. Default: the release in the "
    "project file, otherwise the one that is installed here, otherwise the latest.",
)
@option(
    "--fail-on-cpu",
    is_flag=True,
    help="Exit 1 if a compute node would run on the CPU. Shape arithmetic is allowed there.",
)
@option("--verify", is_flag=True, help="Also open a real DirectML session, and compare its placement.")
@option("--node NAME", help="Explain the placement of this node of one MODEL: each rule, and the advice.")
@option("--watch", is_flag=True, help="Check each MODEL again when its file or a data file changes, until Ctrl-C.")
@prepare_options("vram", *ADAPTER)
@option(
    "--plan",
    is_flag=True,
    help="Show what prepare would change: sizes to set, each step, placement before and after. --recipe, --pin and "
    "--set need it.",
)
@prepare_options(*_ONLY_PLAN)
@project_options
@verbose_option
@output_options("text", "json", "sarif", "github")
def command(
    models: tuple[Path, ...],
    target: str | None,
    node: str | None,
    plan: bool,
    watch: bool,
    project_file: Path | None,
    no_project: bool,
    verbose: bool,
    quiet: bool,
    output_format: str,
    **options: Any,
) -> int:
    """Show which nodes of each MODEL DirectML runs, and why not the others. Runs a model only for --verify.

    \b
    dmlprep check model.onnx
    dmlprep check model.onnx --target all
    dmlprep check models/*.onnx --fail-on-cpu --format sarif > placement.sarif
    dmlprep check model.onnx --node /layer1/Conv
    dmlprep check model.onnx --plan --recipe @vision-fp16 --pin batch=1
    dmlprep check model.onnx --watch

    With --plan, the steps of the recipe run in memory. dmlprep does not run or prove the model. Exit code 1: a step
    refuses the model.

    Exit codes: 0 good; 1 a finding is an error, a limit is exceeded (--fail-on-cpu, --vram), --verify fails, or dmlprep
    does not support the model. 2 bad input; 3 --verify has no DirectML session, or --vram cannot be checked. Each model
    is checked; the worst code counts, in this order: 70, 2, 1, 3, 0. 130 after Ctrl-C, which ends --watch.
    """
    from dmlprep.api.checking import examine
    from dmlprep.api.preparing import start_worker

    fit_mode("--node", node is not None, excludes=("plan", "watch", *_ONLY_CHECK))
    fit_mode("--plan", plan, needs=_ONLY_PLAN, excludes=("watch", *_ONLY_CHECK))
    start_worker()
    project = the_project(project_file, no_project)
    paths = given_models(models)
    if plan or node is not None:
        mode = "--plan" if plan else "--node"
        if target == "all" or output_format not in ("text", "json") or (node is not None and len(paths) > 1):
            fix = f"pass one {'--target' if plan else 'MODEL, one --target'}, and --format text or json"
            raise UsageError("this option needs one release" + ("" if plan else " and one model"), where=mode, fix=fix)
        if node is not None:
            return _explain(paths[0], node, target, project, output_format, quiet=quiet)
        chosen = {name: options[name] for name in _ONLY_PLAN} | {"target": target}
        return _plan(paths, chosen, project, output_format, quiet=quiet)

    def check(path: Path) -> list[Examined]:
        theirs = file_options(project, path, () if target else ("target",))
        where = {name: options[name] for name in ADAPTER}
        return examine(
            path,
            target or theirs.get("target"),
            fail_on_cpu=options["fail_on_cpu"],
            verify=options["verify"],
            vram=options["vram"] or theirs.get("vram"),
            **where,
        )

    def show(checked: list[list[Examined]], *, several: bool) -> None:
        in_text = output_format == "text" and (quiet or target != "all")  # its first words are the error
        for newest in (rows[-1].record for rows in checked):
            if newest.error and not in_text:
                echo(f"{printable(newest.input)}: {newest.error}", err=True)
        if quiet and output_format == "text":
            from dmlprep.record.run_record import brief_line

            echo_lines(brief_line(rows[-1].record) for rows in checked)
        else:
            _show(checked, output_format, every=target == "all", several=several, verbose=verbose)

    if watch:
        _watch(paths, check, show, apart=output_format == "text" and not quiet)
    checked: list[list[Examined]] = []

    def keep(path: Path) -> int:
        checked.append(check(path))
        return checked[-1][-1].record.exit_code

    code = _each(paths, keep)
    show(checked, several=len(paths) > 1)
    return code


def _each(paths: Sequence[Path], work: Callable[[Path], int]) -> int:
    """Call ``work`` for each model, and return the worst exit code. If there are several, print their errors."""
    from dmlprep.record.fleet import worst

    code = 0
    for path in paths:
        try:
            code = worst((code, work(path)))
        except DmlprepError as error:
            if len(paths) == 1:
                raise
            print_error(error)
            code = worst((code, error.exit_code))
    return code


def _plan(
    paths: Sequence[Path], options: dict[str, Any], project: Project | None, output_format: str, *, quiet: bool
) -> int:
    outlooks: dict[Path, Outlook] = {}
    more: dict[Path, list[str]] = {}

    def plan(path: Path) -> int:
        wanted = completed(project, path, options, quiet=quiet or output_format == "json")
        outlooks[path] = api.plan_model(path, **wanted)
        more[path] = [f"--set={name}={toml_value(value)}" for name, value in wanted["settings"].items()]
        more[path] += ["--no-project"] * (click.get_current_context().params["no_project"] or project is not None)
        return int(bool(outlooks[path].refused))

    code = _each(paths, plan)
    if output_format == "json":
        import msgspec

        objects = [{"format": 1, "model": str(path), **msgspec.to_builtins(one)} for path, one in outlooks.items()]
        print_json({"format": 1, "models": objects} if len(paths) > 1 else objects[0])
        return code
    from dmlprep.report.outlook_text import in_full, in_one_line

    for number, (path, one) in enumerate(outlooks.items()):
        lines = [in_one_line(one, str(path))] if quiet else in_full(one, str(path), more[path])
        echo_lines(["", *lines] if number and not quiet else lines)
    return code


def _explain(
    path: Path, node: str, target: str | None, project: Project | None, output_format: str, *, quiet: bool
) -> int:
    target = target or file_options(project, path, ("target",)).get("target") or default_target()[0]
    lines = explain_node(path, node, target=target).splitlines()
    if output_format == "json":
        print_json({"model": str(path), "node": node, "target": target, "lines": lines})
    else:
        echo_lines([one for one in lines if one.startswith("-> ")] if quiet else lines)
    return 0


def _watch(
    paths: Sequence[Path], examined: Callable[[Path], list[Examined]], show: Callable[..., None], *, apart: bool
) -> NoReturn:
    """Check each model again when it changes, and show an error of a model once, until it changes.

    ``apart``: an empty line between two results.
    """
    from dmlprep.api.checking import changed_models
    from dmlprep.core.errors import InputError, ModelRefused, ToolFailed

    errors: dict[Path, str] = {}
    is_first = True
    for path in changed_models(paths):
        try:
            rows = examined(path)
        except (InputError, ModelRefused, ToolFailed) as error:
            if errors.get(path) != str(error):
                print_error(error)
            errors[path] = str(error)
        else:
            errors.pop(path, None)
            if apart and not is_first:
                echo()
            is_first = False
            show([rows], several=False)
    raise AssertionError("the models are watched without end")


def _show(checked: list[list[Examined]], output_format: str, *, every: bool, several: bool, verbose: bool) -> None:
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
    elif not verbose and not every:
        from dmlprep.report.placement_text import summary

        texts = [summary(rows[0].record) for rows in checked]
        echo_coloured([*(line for text, _ in texts for line in text), *dict.fromkeys(end for _, end in texts)])
    else:
        from dmlprep.report.placement_text import by_release, lines

        tables = [
            by_release(rows[0].record.input, [(r.target, r.record, r.placement) for r in rows])
            if every
            else lines(rows[0].record, rows[0].placement, rows[0].target)
            for rows in checked
        ]
        for number, table in enumerate(tables):
            echo_lines(["", *table] if number else table)
