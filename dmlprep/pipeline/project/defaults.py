"""The options that the project file sets for one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmlprep.core.errors import UsageError
from dmlprep.core.files.links import check_no_links
from dmlprep.core.files.outputs import default_place, stem_of
from dmlprep.core.text.documents import toml_value
from dmlprep.metrics import NamedMetric
from dmlprep.pipeline.options import OPTIONS
from dmlprep.pipeline.project.file import Entry, Project

PLAIN = "@static-fp32"
"""The recipe of a model for which the file sets none; it is also the default of ``prepare``."""


@dataclass(frozen=True)
class Defaults:
    """The options that a project file sets for one model.

    Attributes:
        options: options of ``prepare`` by name; only those that the file sets. Several recipes or targets
            give the first one, several sizes none.
        out: folder of the result, or a path that ends in ``.onnx``; ``None`` if the file sets none. The model's name is
            added to the folder at the top of the file, but not to that of an entry.
        several: the values of axes with more than one, by the option that would choose one: ``pins`` for sizes.
    """

    options: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None
    several: dict[str, list[str]] = field(default_factory=dict)


def defaults_for(project: Project, model: Path) -> Defaults:
    """Return the options of a project file for a model: its top first, then each matching entry, in file order.

    Pins and settings are merged by name; for every other option the last entry counts.

    Raises:
        UsageError: too many files match a pattern of the file.
    """
    entries = [entry for pattern, entry in project.models.items() if project.matches(pattern, model)]
    every = [project.defaults, *entries]
    options = merged(project.folder, every, model)
    recipes, targets, sizes = axes_of(every)
    if recipes.is_axis:
        options["recipe"] = recipe_at(project.folder, recipes.choices[0])
    if targets.is_axis:
        options["target"] = targets.choices[0]
    if sizes.is_axis and len(sizes.choices) == 1:  # pins that the user sets do not add up with one of several sizes
        options["pins"] = add(options.get("pins", {}), pins_of(every)[sizes.choices[0]])
    by_option = {"recipe": recipes.choices, "target": targets.choices, "pins": sizes.choices}
    several = {name: choices for name, choices in by_option.items() if len(choices) > 1}
    shared = project.defaults.get("out")
    out = Path(shared) / stem_of(model) if shared is not None else None
    for entry in entries:
        out = Path(entry["out"]) if entry.get("out") is not None else out
    if "metric" in options:
        options["metric"] = NamedMetric(options["metric"], project.file)
    return Defaults(options, project.folder / out if out is not None else None, several)


@dataclass(frozen=True)
class Axis:
    """The recipes, targets or names of sizes of one model.

    Attributes:
        choices: the values; one that is empty stands for the default.
        is_axis: True if the file sets a list, even one with a single value.
    """

    choices: list[str]
    is_axis: bool = False


def axes_of(entries: Sequence[Entry]) -> tuple[Axis, Axis, Axis]:
    """Return recipes, targets and names of sizes for a model. The last entry that has a choice decides."""
    recipes, targets = Axis([PLAIN]), Axis([""])
    for entry in entries:
        if "recipes" in entry or "recipe" in entry:
            recipes = Axis(entry.get("recipes") or [entry.get("recipe") or PLAIN], "recipes" in entry)
        if "targets" in entry or "target" in entry:
            targets = Axis(entry.get("targets") or [entry.get("target") or ""], "targets" in entry)
    sizes = pins_of(entries)
    return recipes, targets, Axis(list(sizes) or [""], bool(sizes))


def pins_of(entries: Sequence[Entry]) -> dict[str, dict[str, Any]]:
    """Return the ``sizes`` of the last entry that has them (name -> pins); empty if no entry has them."""
    return next((entry["sizes"] for entry in reversed(entries) if "sizes" in entry), {})


def merged(folder: Path, entries: Sequence[Entry], model: Path) -> dict[str, Any]:
    """Merge the options of ``entries``, which all apply to the model already, and return them.

    Later entries override earlier ones; pins and settings are merged by name. Keys that are not options are skipped,
    and so are empty lists. Paths in the entries are relative to ``folder``; in the result, they are joined with
    ``folder``, and ``{name}`` in a feed is the name of ``model``.
    """
    options: dict[str, Any] = {}
    for entry in entries:
        for name, value in entry.items():
            if name not in OPTIONS or (OPTIONS[name].kind is list and not value):
                continue
            if OPTIONS[name].kind is dict:
                options[name] = add(options.get(name, {}), value)
            else:
                options[name] = _seen_from(folder, name, value, model)
    return options


def add(values: Mapping[str, Any], more: Mapping[str, object]) -> dict[str, object]:
    """Return the values of both by name; ``more`` overrides equal names, and its names come last."""
    return {**{name: value for name, value in values.items() if name not in more}, **more}


def _seen_from(folder: Path, name: str, value: Any, model: Path) -> object:
    """Return the value of an option; a path in it, relative to ``folder``, is joined with ``folder``."""
    if name == "recipe":
        return recipe_at(folder, value)
    if name == "feeds":
        return tuple(_feed(folder, one, model) for one in value)
    return str(folder / value) if name == "metric" else value


def recipe_at(folder: Path, recipe: str) -> str:
    """Return the recipe that a file in ``folder`` names: a built-in name as it is, or a path joined with ``folder``."""
    return recipe if recipe.startswith("@") else str(folder / recipe)


def _feed(folder: Path, feed: str, model: Path) -> str:
    """Return a feed of a project file (a path, or ``NAME=file.npy``) with its path joined with ``folder``.

    ``{name}`` in the path is replaced by the model's name.
    """
    name, equals, path = feed.rpartition("=")
    if "{name}" in path:
        path = path.replace("{name}", stem_of(model))
    return f"{name}{equals}{folder / path}"


def in_words(options: Mapping[str, Any]) -> str:
    """Describe the options of a file in one line for the user; empty if there is nothing to mention."""
    plain = (str, int, float, NamedMetric)
    parts = [f"{k} {v}" for k, v in options.items() if isinstance(v, plain) and not isinstance(v, bool)]
    parts += ["DirectML required"] if options.get("require_dml") else []
    if feeds := options.get("feeds"):
        parts.append("1 path of feeds" if len(feeds) == 1 else f"{len(feeds)} paths of feeds")
    if pins := options.get("pins"):
        parts.append(f"pins {' '.join(f'{name}={toml_value(value)}' for name, value in pins.items())}")
    return ", ".join([*parts, *(f"{name}={toml_value(value)}" for name, value in options.get("settings", {}).items())])


def own_models(project: Project) -> list[Path]:
    """Return the models that the project file names, each once.

    Raises:
        UsageError: the file names no existing model.
    """
    models = list(dict.fromkeys(one for pattern in project.models for one in project.files(pattern)))
    if not models:
        what = "the project file names no existing model"
        raise UsageError(what, where=project.file, fix="see its [models] tables: dmlprep init MODEL writes them")
    return models


def result_places(models: Sequence[Path], out: Path | None, project: Project | None) -> dict[Path, Path]:
    """Return the folder, or the ``.onnx`` file, to which ``prepare`` writes each model.

    Args:
        out: the user's choice, which overrides the project file; each of several models gets a subfolder with its name.
            If neither sets a place, it is ``build/models/NAME``, next to the project file or in the working folder.
        project: the project file; ``None``: there is none.

    Raises:
        UsageError: the project file names a place outside its own folder, two models would have the same one, or
            ``out`` is one file for several models.
        OutputError: a link exists at the path of a model's folder.
    """
    places: dict[Path, Path] = {}
    owners: dict[str, Path] = {}
    for model in models:
        places[model] = _place(model, out, project, several=len(models) > 1)
        if out is not None:
            check_no_links(out, places[model])
        # Windows and macOS ignore case in names.
        other = owners.setdefault(str(places[model]).casefold(), model)
        if other is not model:
            what = f"{other} and {model} would both be written to {places[model]}"
            raise UsageError(what, where="--out", fix="rename one, or prepare them one by one")
    return places


def _place(model: Path, out: Path | None, project: Project | None, *, several: bool) -> Path:
    if out is not None:
        if several and out.suffix.lower() == ".onnx":
            raise UsageError(f"{out} is one file, but there are several models", where="--out", fix="pass a folder")
        return out / stem_of(model) if several else out
    if project is not None and (folder := defaults_for(project, model).out) is not None:
        return project.inside(folder)
    return default_place("models", stem_of(model), project.folder if project is not None else Path())
