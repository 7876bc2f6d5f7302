"""``dmlprep init``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, get_args

import click

from dmlprep import api
from dmlprep.cli.help import Command
from dmlprep.cli.options import PATH, fit_mode, given_models, option, quiet_option
from dmlprep.cli.output import echo, echo_page, print_error
from dmlprep.core.errors import UsageError
from dmlprep.core.text.shell import command_line
from dmlprep.core.text.sizes import count_text
from dmlprep.portable.bounds import MOST_SIZE

Build = Literal["cmake", "msbuild", "hatch", "github", "pre-commit"]
_NAME = "dmlprep.toml"


@click.command("init", cls=Command)
@click.argument("models", type=PATH, nargs=-1, metavar="[MODEL...]")
@option("-o", "--out", type=PATH, default=Path(_NAME), help="Project file to write (NAME.toml), or to add models to.")
@option("--results FOLDER", default="build/models", help="Folder for results, in a new project file.")
@option("-y", "--yes", is_flag=True, help="Do not ask: use example sizes for unknown dimensions.")
@option(
    "--for",
    "build",
    type=click.Choice(get_args(Build)),
    help="Print the lines that run this at each build, or for pre-commit at each commit.",
)
@option("--force", is_flag=True, help="Replace the project file.")
@quiet_option
def command(
    models: tuple[Path, ...], out: Path, results: str, yes: bool, build: Build | None, force: bool, quiet: bool
) -> int:
    """Write a project file with a recipe and sizes for each MODEL, or add MODEL to it.

    \b
    dmlprep init model.onnx
    dmlprep prepare

    Without MODEL, dmlprep uses all models in the folder of the project file and below. On a terminal it asks for
    the sizes.

    Exit codes: 0 written, or MODEL is in the file; 2 no model, or one that cannot be read (without MODEL, the others
    are written).
    """
    asking = not yes and sys.stdin.isatty()
    existed = out.exists() and not force
    fit_mode("an existing project file", existed, excludes=("results",))
    begun = api.init_project(
        *given_models(models), out=out, results=results, ask=_ask_size if asking else None, force=force
    )
    for error in begun.unreadable.values():
        print_error(error)
    code = UsageError.exit_code if begun.unreadable else 0
    if not begun.models and not begun.present:
        return code
    for one in begun.present if models else []:
        echo(f"{one.path} is in {out} already")
    count = count_text(len(begun.models), "model")
    if begun.models or not models:
        echo(f"added {count} to {out}" if existed else f"wrote {out}: {count}")
    if begun.models and not quiet:
        for one in begun.models:
            sizes = f", {', '.join(f'{name}={size}' for name, size in one.sizes.items())}" if one.sizes else ""
            guessed = " (examples: put your own there)" if one.guessed else ""
            echo(f"  {one.path}: {one.recipe}, {one.why}{sizes}{guessed}")
        echo(f"next: {command_line('dmlprep', 'prepare', *(() if out == Path(_NAME) else ('--project', out)))}")
    if build is not None:
        echo()
        echo_page(api.build_snippet(begun, build))
    return code


def _ask_size(model: Path, name: str, example: int) -> int:
    return int(click.prompt(f"{model}: size of {name}", default=example, type=click.IntRange(1, MOST_SIZE), err=True))
