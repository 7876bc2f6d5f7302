"""Where the results of several models go: each in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dmlprep.core.errors import UsageError
from dmlprep.core.files.links import check_no_links
from dmlprep.core.files.outputs import stem_of
from dmlprep.pipeline.project.defaults import defaults_for
from dmlprep.pipeline.project.file import Project


def own_models(project: Project) -> list[Path]:
    """The models that the project file names, each once.

    Raises:
        UsageError: it names none that is there.
    """
    found = list(dict.fromkeys(one for pattern in project.models for one in project.files(pattern)))
    if not found:
        raise UsageError(
            "the project file names no model that is there",
            where=project.file,
            fix="see its [models] tables: dmlprep init MODEL writes them",
        )
    return found


def result_places(models: Sequence[Path], out: Path | None, project: Project | None) -> dict[Path, Path]:
    """The folder, or file, that ``prepare`` writes for each model.

    Args:
        out: what the user says; of several models each has a folder of its name in it.

    Raises:
        UsageError: no folder is set for a model, the project file names a place outside its own folder, or two models
            would go to one place.
        OutputError: a link is in the place of a model's folder.
    """
    places: dict[Path, Path] = {}
    taken: dict[str, Path] = {}
    for model in models:
        places[model] = _place(model, out, project, several=len(models) > 1)
        if out is not None:
            check_no_links(out, places[model])
        # Windows and macOS take both cases for one name.
        other = taken.setdefault(str(places[model]).casefold(), model)
        if other is not model:
            raise UsageError(
                f"{other} and {model} would both be written to {places[model]}",
                where="--out",
                fix="rename one, or prepare them one by one",
            )
    return places


def _place(model: Path, out: Path | None, project: Project | None, *, several: bool) -> Path:
    if out is not None:
        if several and out.suffix.lower() == ".onnx":
            raise UsageError(f"{out} is one file, and several models are given", where="--out", fix="name a folder")
        return out / stem_of(model) if several else out
    if project is not None and (found := defaults_for(project, model).out) is not None:
        return project.inside(found)
    raise UsageError(
        "nobody says where the result goes, and no project file says it for this model",
        where=str(model),
        fix="add -o FOLDER ('--out')",
    )
