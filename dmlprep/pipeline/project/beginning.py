"""Write a project file, or add models to one: examine each model, and suggest a recipe and sizes for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from dmlprep.core.errors import DmlprepError, UsageError
from dmlprep.core.files import NotToml, Unfit, check_output, decode_text, parse_toml
from dmlprep.core.files.writing import append_file, write_file
from dmlprep.core.text.documents import toml_comment, toml_key, toml_value
from dmlprep.graph.model import Model
from dmlprep.graph.model.budget import limited
from dmlprep.graph.model.checking import demand_valid
from dmlprep.graph.model.pinned import Value
from dmlprep.pipeline.dry_run import look_ahead
from dmlprep.pipeline.project.defaults import PLAIN, defaults_for
from dmlprep.pipeline.project.file import Project, is_result, read_project
from dmlprep.pipeline.recipe import load_recipe, make_plan
from dmlprep.pipeline.recipe.suiting import suggest_for

_LONGEST = 200
"""Largest number of characters of a comment in the file."""


@dataclass(frozen=True)
class Suggestion:
    """The recipe and sizes suggested for a model.

    Attributes:
        path: path of the model, relative to the project file.
        why: the property of the model that decided about the recipe; empty if the project file set it already.
        sizes: sizes for free dimensions, by name or by ``input:axis``; from a project file, all its pins.
        guessed: names of the dimensions whose sizes are only examples: the user has to check them.
    """

    path: str
    recipe: str
    why: str
    sizes: dict[str, Value] = field(default_factory=dict)
    guessed: list[str] = field(default_factory=list)


def project_text(suggestions: Sequence[Suggestion], out: str) -> str:
    """Return the TOML text of a project file; ``out`` is the folder for prepared models."""
    folder = toml_value(PurePath(out).as_posix())
    head = "# Settings of dmlprep: docs/project-file.md\n"
    return f"{head}out = {folder}          # of each model, a folder of its name in it\n{_tables(suggestions)}"


def _tables(suggestions: Sequence[Suggestion], table: str = "models") -> str:
    """Return a TOML table for each model; comments give the reason for its recipe, and name guessed sizes."""
    lines = []
    for one in suggestions:
        lines += [
            "",
            f"[{table}.{toml_value(one.path)}]",
            f"recipe = {toml_value(one.recipe)}   {toml_comment(one.why, _LONGEST)}",
        ]
        if one.sizes:
            sizes = ", ".join(f"{toml_key(name)} = {toml_value(size)}" for name, size in one.sizes.items())
            guessed = f"   {toml_comment('examples: ' + ', '.join(one.guessed), _LONGEST)}" if one.guessed else ""
            lines.append(f"pins = {{ {sizes} }}{guessed}")
    return "\n".join(lines) + "\n"


_MOST = 1000
"""Largest number of models that are added to a project file if the user names none."""

Ask = Callable[[Path, str, int], int]
"""A function that asks the user for a size: receives a model, a free dimension and an example; returns the size."""


@dataclass(frozen=True)
class Begun:
    """A project file that was written, or to which models were added.

    Attributes:
        file: path of the project file.
        results: folder for prepared models, as the file names it.
        models: the suggestion for each model that was added; if empty, no file was written or changed.
        present: the models that were in the file already, with its recipe and pins for them.
        unreadable: models that cannot be read or are not valid, with the reason; they are not in the file.
    """

    file: Path
    results: str
    models: list[Suggestion] = field(default_factory=list)
    present: list[Suggestion] = field(default_factory=list)
    unreadable: dict[Path, DmlprepError] = field(default_factory=dict)


def begin_project(models: Sequence[Path], file: Path, *, results: str, ask: Ask | None, force: bool) -> Begun:
    """Write a project file for models: a suitable recipe for each, and sizes for free dimensions.

    Models that an existing file lacks are added at its end; the rest of the file stays as it is. No file is written if
    no model can be read.

    Args:
        models: the models; empty: those in the folder of the file and below.
        file: path of the project file.
        results: folder for prepared models, relative to the file; only for a new file.
        ask: the function that asks for each size; ``None``: examples are written.
        force: True to replace an existing file.

    Raises:
        DmlprepError: a model in ``models`` cannot be read, or is not valid.
        OutputError: the file cannot be written.
        UsageError: there is no model, or there are too many. An existing file is wrong, or no table can be added at its
            end. Or the name of a new file does not end in ``.toml``, or is ``pyproject.toml``.
    """
    project = read_project(file) if not force and os.path.lexists(file) else None
    check_output(file, force=True)
    if project is None and (file.suffix != ".toml" or file.name == "pyproject.toml"):
        fix = "pass another name that ends in .toml; a pyproject.toml needs a table [tool.dmlprep] first"
        raise UsageError("init writes no new project file there", where=str(file), fix=fix)
    folder = file.absolute().parent
    paths = models or models_around(folder)
    begun = Begun(file, results)
    if project is not None:
        named = {one.resolve(): one for pattern in project.models for one in project.files(pattern)}
        present = [one for one in paths if one.resolve() in named] if models else [*named.values()]
        begun = Begun(file, project.defaults.get("out", results), present=[_present(project, one) for one in present])
        paths = [one for one in paths if one.resolve() not in named]
    if not paths and not begun.present:
        what = "no .onnx file to prepare in this folder"
        raise UsageError(what, where=str(folder), fix="pass the model: dmlprep init MODEL")
    for model in paths:
        try:
            begun.models.append(_suggestion(model, folder, ask))
        except DmlprepError as error:
            if models:
                raise
            begun.unreadable[model] = error
    if begun.models and project is None:
        write_file(file, project_text(begun.models, results).encode("utf-8"), force=force)
    elif begun.models:
        _append(file, begun.models)
    return begun


def _append(file: Path, suggestions: Sequence[Suggestion]) -> None:
    """Append the tables of models to a project file, with its line ends.

    Raises:
        OutputError: the file cannot be written.
        UsageError: the file would not be valid TOML with these tables at its end.
    """
    old = file.read_bytes()
    within = ["tool", "dmlprep", "models"] if file.name == "pyproject.toml" else ["models"]
    text = _tables(suggestions, ".".join(within))
    text = text if not old or old.endswith(b"\n") else f"\n{text}"
    new = (text.replace("\n", "\r\n") if b"\r\n" in old else text).encode("utf-8")
    try:
        table = parse_toml(decode_text(old + new))
        for key in within:
            table = table[key]
    except (NotToml, Unfit, LookupError):
        table = {}
    if not {one.path for one in suggestions} <= table.keys():
        fix = 'save the file as UTF-8, and write its models as tables: [models."model.onnx"]'
        raise UsageError("no table of a model can be added at the end of this file", where=str(file), fix=fix)
    append_file(file, new)


def _present(project: Project, model: Path) -> Suggestion:
    """Return a model of a project file with the recipe and the pins that the file sets for it."""
    options = defaults_for(project, model).options
    recipe = options.get("recipe", PLAIN)
    recipe = recipe if recipe.startswith("@") else _relative(Path(recipe), project.folder)
    return Suggestion(_relative(model, project.folder), recipe, "", dict(options.get("pins", {})))


def models_around(folder: Path) -> list[Path]:
    """Return the ``.onnx`` files in a folder and its subfolders, except results of dmlprep (``is_result``).

    Hidden folders, ``node_modules`` and ``build`` are skipped.

    Raises:
        UsageError: there are more than 1000.
    """
    paths: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in ("node_modules", "build"))
        models = [one for one in sorted(files) if one.endswith(".onnx")]
        paths += [path for one in models if not is_result(path := Path(place, one))]
        if len(paths) > _MOST:
            raise UsageError(f"more than {_MOST} models in this folder", where=str(folder), fix="pass some of them")
    return paths


def _suggestion(path: Path, folder: Path, ask: Ask | None) -> Suggestion:
    plan = make_plan(load_recipe("@static-fp32"))
    with limited(plan.recipe.limits):
        model = Model.open(path)
        recipe, why = suggest_for(model)
        demand_valid(model.ir, path)
        sizes = dict(look_ahead(model, plan).best.sizes)
    guessed = [name for name, size in sizes.items() if (name, size) != ("batch", 1)]
    if ask is not None:
        sizes = {name: ask(path, name, size) for name, size in sizes.items()}
        guessed = []
    return Suggestion(_relative(path, folder), recipe, why, {**sizes}, guessed)


def _relative(path: Path, folder: Path) -> str:
    """Return a path relative to ``folder``, with ``/``; on another drive of Windows, the absolute path."""
    try:
        return Path(os.path.relpath(path.absolute(), folder)).as_posix()
    except ValueError:
        return path.absolute().as_posix()
