"""Options that several commands share, each written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from dmlprep import api
from dmlprep.api import projects
from dmlprep.api.devices import target_names
from dmlprep.api.recipes import read_settings, recipe_names
from dmlprep.cli.help import Group, GroupedOption
from dmlprep.cli.output import echo
from dmlprep.cli.values import Number, read_pins, read_sizes
from dmlprep.core.errors import UsageError
from dmlprep.core.files import Unfit, is_pattern, matching
from dmlprep.core.files.outputs import default_place
from dmlprep.pipeline.options import OPTIONS, Option, PrepareOptions
from dmlprep.portable.bounds import MOST_SECONDS

if TYPE_CHECKING:
    from dmlprep.api.types import Project

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)


def option(*names: str, **more: Any) -> Callable[[F], F]:
    """Return an option of click: ``option("-j", "--jobs N", help="...")``.

    The word after a flag is the value in the help, which also names the default, unless ``show_default`` is false.
    ``group`` and ``rare`` are its place in the help (``cli.help``).
    """
    flags = [name.partition(" ") for name in names]
    metavar = next((word for _, _, word in flags if word), None)
    shown = {"metavar": metavar, "show_default": bool(more.get("default"))}
    return click.option(*(flag for flag, _, _ in flags), cls=GroupedOption, **shown | more)


class PackGroup(Group):
    """``dmlprep kit MODEL`` packs: the word ``pack`` may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the word ``pack`` if the first argument is not a command."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["pack", *args]
        return super().parse_args(ctx, args)


def fit_mode(mode: str, active: bool, *, needs: Iterable[str] = (), excludes: Iterable[str] = ()) -> None:
    """Compare the options that were typed with a mode of the command, an option such as ``--plan``.

    Args:
        mode: the option, as the user types it.
        active: True if the user chose the mode.
        needs: options that exist only in the mode, by the names of their parameters.
        excludes: options that have no effect in the mode.

    Raises:
        UsageError: an option does not fit.
    """
    context = click.get_current_context()
    wrong = set(excludes if active else needs)
    for param in context.command.params:
        default = context.get_parameter_source(param.name or "") is ParameterSource.DEFAULT
        if param.name in wrong and not default:
            flag = max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name
            if active:
                raise UsageError(f"{flag} has no effect with {mode}", fix="remove one of the two")
            raise UsageError(f"{flag} needs {mode}", fix=f"add {mode}, or remove {flag}")


def given_models(paths: tuple[Path, ...]) -> list[Path]:
    """Return the files on the command line, and the matches of patterns, which the shells of Windows do not expand.

    Raises:
        UsageError: no file matches a pattern.
    """
    models: list[Path] = []
    for path in paths:
        text = str(path)
        if not is_pattern(text) or path.exists():
            models.append(path)
            continue
        try:
            matches = matching(Path(), text)
        except Unfit as error:
            raise UsageError(str(error), where=text, fix=error.fix) from error
        if not matches:
            raise UsageError("no file matches this pattern", where=text, fix="check the path; ** matches any folders")
        models += matches
    return models


def default_out(kind: str, name: str) -> Path:
    """Return the place of a result without ``-o``, ``build/KIND/NAME`` in the working folder, and create its folder.

    Raises:
        OutputError: a part of the path is a link.
    """
    place = default_place(kind, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def targets(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a DirectML release."""
    names = ["latest", *target_names()]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def recipes(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a built-in recipe, or of a file if the word does not begin with ``@``."""
    if incomplete and not incomplete.startswith("@"):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(name) for name in recipe_names() if name.startswith(incomplete)]


ADAPTER = ("device_id", "adapter", "gpu")
DEVICE = ("device", *ADAPTER, "require_dml")
METRIC = ("metric", "metric_bound")
RECIPE = ("recipe", "pins", "settings", "target")
"""Options that go together, by their names in ``dmlprep.pipeline.options``."""


def parsed(read: Callable[[tuple[str, ...]], Any]) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], Any]:
    """Return the callback of an option whose values ``read`` turns into a dictionary."""
    return lambda context, option, values: read(values) if values else {}


def prepare_options(*names: str, **helps: str) -> Callable[[F], F]:
    """Add options of ``dmlprep.pipeline.options``, in this order; ``helps`` replace their help, by name."""

    def decorate(function: F) -> F:
        for name in reversed(names):
            function = _click_option(name, OPTIONS[name], helps.get(name))(function)
        return function

    return decorate


def _click_option(name: str, one: Option, text: str | None) -> Callable[[F], F]:
    more: dict[str, Any] = {"help": text or one.help, "metavar": one.metavar, "show_default": one.shows_default}
    more |= {"cls": GroupedOption, "group": one.group, "rare": one.rare}
    default = getattr(_DEFAULTS, name)
    if one.kind is bool:
        more["is_flag"] = True
    elif one.kind in (list, dict):
        more["multiple"] = True
        more["callback"] = parsed(_READ[name]) if name in _READ else None
    elif one.choices:
        more["type"] = click.Choice(one.choices)
    elif one.kind is int:
        least, most = (None if bound is None else int(bound) for bound in (one.least, one.most))
        more["type"] = click.IntRange(least, most)
    elif one.kind is float:
        more["type"] = Number(one.least, one.most)
    if one.bare is not None:
        more |= {"is_flag": False, "flag_value": one.bare}
    if one.kind not in (list, dict) and default is not None:
        more["default"] = default
    if one.completes:
        more["shell_complete"] = {"recipes": recipes, "targets": targets}[one.completes]
    return click.option(*(one.flags or (f"--{name.replace('_', '-')}",)), name, **more)


_READ: dict[str, Callable[[tuple[str, ...]], object]] = {"pins": read_pins, "settings": read_settings}
_DEFAULTS = PrepareOptions()


def sizes_option(function: F) -> F:
    """Add ``--size``: sizes of dimensions that are free in synthetic feeds."""
    says = "Size of a free dimension in generated inputs."
    read = parsed(partial(read_sizes, option="--size"))
    return option("--size DIM=SIZE", "sizes", multiple=True, callback=read, help=says)(function)


def optimization_option(says: str) -> Callable[[F], F]:
    """Add ``--optimization``, a level of ONNX Runtime's graph optimisation; ``says`` is its help."""
    levels = click.Choice(["disabled", "basic", "extended", "all"])
    return option("--optimization", type=levels, default="all", help=says, group="Device", rare=True)


def time_limit_option(seconds: float, says: str) -> Callable[[F], F]:
    """Add ``--time-limit``, by default ``seconds``; ``says`` is its help."""
    kind = Number(0, MOST_SECONDS, min_open=True)
    return option("--time-limit SECONDS", type=kind, default=seconds, help=says, rare=True)


def device_option(says: str, default: str | None = "cpu") -> Callable[[F], F]:
    """Add ``--device``, ``cpu`` or ``dml``; ``says`` is its help."""
    return option("--device", type=click.Choice(["cpu", "dml"]), default=default, help=says, group="Device")


def quiet_option(function: F) -> F:
    """Add ``-q``, for builds and scripts."""
    says = "Show no progress, and one line if there is no problem."
    return option("-q", "--quiet", is_flag=True, help=says, group="Output")(function)


def output_options(*formats: str) -> Callable[[F], F]:
    """Add ``-q`` and ``--format``; the first of ``formats`` is the default."""
    says = "Format of the result on stdout."
    choice = click.Choice(formats)
    form: Callable[[F], F] = option(
        "--format", "output_format", type=choice, default=formats[0], help=says, group="Output"
    )
    return lambda function: quiet_option(form(function))


def verbose_option(function: F) -> F:
    """Add ``-v``, which shows tables and all findings."""
    says = "Show all tables, findings and verdicts, not the result alone."
    return option("-v", "--verbose", is_flag=True, help=says, group="Output")(function)


def project_options(function: F) -> F:
    """Add ``--project`` and ``--no-project``."""
    says = (
        "Project file; by default dmlprep.toml, or [tool.dmlprep] of pyproject.toml, the nearest from this folder up."
    )
    named = option("--project FILE", "project_file", type=PATH, help=says, rare=True)
    return named(option("--no-project", is_flag=True, help="Read no project file.", rare=True)(function))


def the_project(project_file: Path | None, no_project: bool) -> Project | None:
    """Return the project file that applies; ``None`` if there is none, or for ``no_project``.

    Raises:
        click.UsageError: both options are set.
        UsageError: as in ``dmlprep.api.read_project``.
    """
    if no_project:
        if project_file is not None:
            raise click.UsageError("--project and --no-project contradict each other.")
        return None
    return api.read_project(project_file)


def completed(project: Project | None, model: Path, options: dict[str, Any], *, quiet: bool = True) -> dict[str, Any]:
    """Complete the options of a command by those of the project file for a model, and print them unless ``quiet``.

    The command line overrides the file: pins and settings by name, every other option if it was typed.
    """
    context = click.get_current_context()
    typed = {name for name in options if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    if context.params.get("buckets"):  # sizes that the user set
        typed.add("pins")
    file_options = projects.file_options(project, model, options.keys() - typed)
    theirs = {name: value for name, value in file_options.items() if name in options}
    chosen = {name: options[name] for name in theirs if OPTIONS[name].kind is dict or name in typed}
    both, text = projects.completed(theirs, chosen)
    if project is not None and not quiet and text:
        echo(f"{project.file}: {text}", err=True)
    return {**options, **both}
