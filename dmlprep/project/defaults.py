"""What the project file says of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dmlprep.files.outputs import stem_of
from dmlprep.metrics import NamedMetric
from dmlprep.model.pinned import Value
from dmlprep.project.file import Entry, Project
from dmlprep.record.documents import toml_value

__all__ = ["Defaults", "defaults_for", "in_words", "merged", "recipe_at"]


@dataclass(frozen=True)
class Defaults:
    """What holds for a model where the command line says nothing.

    Attributes:
        given: options by the names of ``prepare``'s arguments; what nobody says is not in it.
        pins: as the command line takes them; ``settings`` too.
        out: folder of the result, ``None`` where nobody says.
    """

    given: dict[str, object] = field(default_factory=dict)
    pins: dict[str, Value] = field(default_factory=dict)
    settings: list[str] = field(default_factory=list)
    out: Path | None = None


def defaults_for(project: Project, model: Path) -> Defaults:
    """The project's own fields, and above them those of each entry that the model falls under, in their order.

    Pins add up by name, settings by their order; of every other field the last one holds.
    """
    wanted = model.absolute().resolve()
    entries = [
        entry
        for pattern, entry in project.models.items()
        if any(one.absolute().resolve() == wanted for one in project.files(pattern))
    ]
    found = merged(project.folder, (project, *entries), model)
    out = Path(project.out) / stem_of(model) if project.out is not None else None
    for entry in entries:
        out = Path(entry.out) if entry.out is not None else out
    if (metric := found.given.get("metric")) is not None:
        found.given["metric"] = NamedMetric(str(metric), project.file)
    return replace(found, out=project.folder / out if out is not None else None)


def merged(folder: Path, entries: Sequence[Entry], model: Path) -> Defaults:
    """What entries say of a model together, the last over those before, ``out`` aside.

    Args:
        folder: of the file that they stand in; what they name is relative to it.
    """
    pins: dict[str, Value] = {}
    settings: list[str] = []
    given: dict[str, object] = {}
    for entry in entries:
        pins |= entry.pins
        settings += entry.settings
        given |= _given(folder, entry, model)
    return Defaults(given, pins, settings)


def _given(folder: Path, entry: Entry, model: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    if entry.recipe is not None:
        found["recipe"] = recipe_at(folder, entry.recipe)
    if entry.feeds:
        found["feeds"] = tuple(_feed(folder, one, model) for one in entry.feeds)
    if entry.metric is not None:
        found["metric"] = str(folder / entry.metric)
    plain = ("target", "device", "require_dml", "vram", "metric_bound")
    found |= {n: v for n in plain if (v := getattr(entry, n)) is not None}
    return found


def recipe_at(folder: Path, recipe: str) -> str:
    """A recipe that a file in ``folder`` names: a built-in one, or a path."""
    return recipe if recipe.startswith("@") else str(folder / recipe)


def _feed(folder: Path, feed: str, model: Path) -> str:
    """``NAME=file.npy`` and paths, as seen from the file; ``{name}`` in a path stands for the model's."""
    name, equals, path = feed.rpartition("=")
    if "{name}" in path:
        path = path.replace("{name}", stem_of(model))
    return f"{name}{equals}{folder / path}"


def in_words(given: Mapping[str, object], pins: Mapping[str, Value], settings: Sequence[str]) -> str:
    """What was taken from the file, for who runs the command."""
    parts = [f"{name} {value}" for name, value in given.items() if isinstance(value, str | NamedMetric)]
    parts += ["DirectML required"] if given.get("require_dml") else []
    feeds = given.get("feeds")
    if isinstance(feeds, tuple):
        parts.append("feeds of 1 path" if len(feeds) == 1 else f"feeds of {len(feeds)} paths")
    parts += [f"pins {' '.join(f'{n}={toml_value(v)}' for n, v in pins.items())}"] if pins else []
    return ", ".join([*parts, *settings])
