"""The project file on the command line: what it says holds where an option was not given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dmlprep import api
from dmlprep.api import projects
from dmlprep.cli.options import PATH, option
from dmlprep.cli.output import echo
from dmlprep.pipeline.options import OPTIONS

if TYPE_CHECKING:
    from dmlprep.api.types import Project

F = TypeVar("F", bound=Callable[..., Any])


def project_options(function: F) -> F:
    """``--project`` and ``--no-project``."""
    named = option(
        "--project FILE",
        "project_file",
        type=PATH,
        help="Project file; by default dmlprep.toml, or [tool.dmlprep] of pyproject.toml, here or in the repository.",
    )
    none = option("--no-project", is_flag=True, help="Read no project file.")
    return named(none(function))


def the_project(project_file: Path | None, no_project: bool) -> Project | None:
    """The project file that holds, ``None`` where there is none."""
    if no_project:
        if project_file is not None:
            raise click.UsageError("--project and --no-project contradict each other.")
        return None
    return api.read_project(project_file)


def completed(project: Project | None, model: Path, options: dict[str, Any], *, quiet: bool = True) -> dict[str, Any]:
    """Complete the options of a command by those of the project file for a model, and print them unless ``quiet``.

    The command line overrides the file: pins and settings by name, every other option if it was typed.
    """
    from click.core import ParameterSource

    context = click.get_current_context()
    theirs = {name: value for name, value in projects.file_options(project, model).items() if name in options}
    chosen = {
        name: options[name]
        for name in theirs
        if OPTIONS[name].kind is dict or context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    both, text = projects.completed(theirs, chosen)
    if project is not None and not quiet and text:
        echo(f"{project.file}: {text}", err=True)
    return {**options, **both}
