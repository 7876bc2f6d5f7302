"""The project file on the command line: what it says holds where an option was not given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dmlprep.cli.output import echo

if TYPE_CHECKING:
    from dmlprep.project import Project

__all__ = ["completed", "file_options", "project_options", "the_project"]

F = TypeVar("F", bound=Callable[..., Any])


def project_options(function: F) -> F:
    """``--project`` and ``--no-project``."""
    named = click.option(
        "--project",
        "project_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Project file; by default dmlprep.toml, or [tool.dmlprep] of pyproject.toml, here or in the repository.",
    )
    none = click.option("--no-project", is_flag=True, help="Read no project file.")
    return named(none(function))


def the_project(project_file: Path | None, no_project: bool) -> Project | None:
    """The project file that holds, ``None`` where there is none."""
    if no_project:
        if project_file is not None:
            raise click.UsageError("--project and --no-project contradict each other.")
        return None
    from dmlprep.project import find_project, read_project

    found = project_file or find_project()
    return None if found is None else read_project(found)


def file_options(project: Project | None, model: Path) -> dict[str, Any]:
    """The options that the project file sets for a model; none where there is no file."""
    if project is None:
        return {}
    from dmlprep.project import defaults_for

    return defaults_for(project, model).options


def completed(project: Project | None, model: Path, options: dict[str, Any], *, quiet: bool = True) -> dict[str, Any]:
    """The options of a command, completed by those of the project file for a model.

    The command line goes over the file: pins and settings by name, every other option if it was typed.

    Args:
        quiet: do not print what came from the file.
    """
    from click.core import ParameterSource

    from dmlprep.options import OPTIONS
    from dmlprep.project import add, in_words

    context = click.get_current_context()
    taken: dict[str, Any] = {}
    for name, value in file_options(project, model).items():
        if name in options and OPTIONS[name].kind is dict:
            taken[name] = {one: held for one, held in value.items() if one not in options[name]}
        elif name in options and context.get_parameter_source(name) is ParameterSource.DEFAULT:
            taken[name] = value
    if project is not None and not quiet and (text := in_words(taken)):
        echo(f"{project.file}: {text}", err=True)
    both = {name: add(value, options[name]) for name, value in taken.items() if OPTIONS[name].kind is dict}
    return {**options, **taken, **both}
