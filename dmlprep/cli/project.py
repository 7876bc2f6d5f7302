"""The project file on the command line: what it says holds where an option was not given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dmlprep.cli.output import echo

if TYPE_CHECKING:
    from dmlprep.model.pinned import Value
    from dmlprep.project import Project

__all__ = ["completed", "project_options", "target_of", "the_project", "vram_of"]

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


def target_of(project: Project | None, model: Path) -> str:
    """The target that the project file says for a model; ``latest`` where it says none."""
    if project is None:
        return "latest"
    from dmlprep.project import defaults_for

    return str(defaults_for(project, model).given.get("target", "latest"))


def vram_of(project: Project | None, model: Path) -> str | None:
    """The memory that the project file says the device has; ``None`` where it says nothing."""
    if project is None:
        return None
    from dmlprep.project import defaults_for

    found = defaults_for(project, model).given.get("vram")
    return str(found) if found is not None else None


def completed(
    project: Project | None,
    model: Path,
    options: dict[str, Any],
    pins: dict[str, Value],
    *,
    quiet: bool = True,
) -> tuple[dict[str, Any], dict[str, Value]]:
    """The options and pins of a command with what the project file says of a model.

    What was given on the command line holds: pins by name, settings after those of the file.

    Args:
        quiet: do not say what came from the file.
    """
    if project is None:
        return options, pins
    from click.core import ParameterSource

    from dmlprep.project import defaults_for, in_words

    found = defaults_for(project, model)
    context = click.get_current_context()
    typed = {name for name in options if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    taken = {name: value for name, value in found.given.items() if name in options and name not in typed}
    made = {**options, **taken}
    if "settings" in options:
        made["settings"] = (*found.settings, *options["settings"])
    added = {name: value for name, value in found.pins.items() if name not in pins}
    if not quiet and (said := in_words(taken, added, found.settings if "settings" in options else ())):
        echo(f"{project.file}: {said}", err=True)
    return made, {**found.pins, **pins}
