"""Begin a project file: look at each model, and write what fits it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmlprep.core.errors import DmlprepError, UsageError
from dmlprep.core.files import check_output
from dmlprep.core.files.writing import write_file
from dmlprep.graph.model import Model
from dmlprep.graph.model.budget import limited
from dmlprep.graph.model.checking import demand_valid
from dmlprep.pipeline.dry_run import look_ahead
from dmlprep.pipeline.project.starting import Suggestion, project_text, suggest_for
from dmlprep.pipeline.recipe import load_recipe, make_plan

_MOST = 1000
"""Models of one project file that nobody named."""

Ask = Callable[[Path, str, int], int]
"""Is told a model, a free dimension and an example of its size; says the size."""


@dataclass(frozen=True)
class Begun:
    """A project file that was written.

    Attributes:
        results: folder of the results, as the file names it.
        models: what each model was taken for.
        unreadable: models that were found and cannot be read, with the reason; they are not in the file.
    """

    file: Path
    results: str
    models: list[Suggestion] = field(default_factory=list)
    unreadable: dict[Path, DmlprepError] = field(default_factory=dict)


def begin_project(models: Sequence[Path], file: Path, *, results: str, ask: Ask | None, force: bool) -> Begun:
    """Write a project file for models: the recipe that fits each, and sizes for what is free.

    Args:
        models: those that are meant; empty: those in the folder of the file and below.
        ask: says the sizes; without it examples stand for them.

    Raises:
        InputError: a model that was named cannot be read.
        OutputError: the file is there, or cannot be written.
        UsageError: no model is there, none can be read, or they are too many.
    """
    check_output(file, force=force)
    folder = file.absolute().parent
    found = models or models_around(folder)
    if not found:
        raise UsageError("no .onnx file is here", where=str(folder), fix="name the model: dmlprep init MODEL")
    begun = Begun(file, results)
    for model in found:
        try:
            begun.models.append(_suggestion(model, folder, ask))
        except DmlprepError as error:
            if models:
                raise
            begun.unreadable[model] = error
    if begun.models:
        write_file(file, project_text(begun.models, results).encode("utf-8"), force=force)
    return begun


def models_around(folder: Path) -> list[Path]:
    """Models in a folder and below, without those that tools keep or ``prepare`` wrote.

    Raises:
        UsageError: they are too many.
    """
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in ("node_modules", "build"))
        models = [one for one in sorted(files) if one.endswith(".onnx")]
        found += [Path(place) / one for one in models if one != "model.onnx" or "run.json" not in files]
        if len(found) > _MOST:
            raise UsageError(f"more than {_MOST} models are here", where=str(folder), fix="name those that are meant")
    return found


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
    try:
        named = Path(os.path.relpath(path.absolute(), folder)).as_posix()
    except ValueError:  # another drive of Windows
        named = path.absolute().as_posix()
    return Suggestion(named, recipe, why, sizes, guessed)
