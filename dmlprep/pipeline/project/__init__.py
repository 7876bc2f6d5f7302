"""The project file: what ``prepare`` and its kin do by default in one folder, and for each of its models.

``dmlprep.toml``, or the table ``[tool.dmlprep]`` of ``pyproject.toml``. ``file`` finds it, ``reading`` reads it,
``defaults`` says what holds for a model and ``places`` where its result goes; ``beginning`` writes one for models that
are there.
"""

from dmlprep.pipeline.project.defaults import (
    Defaults,
    add,
    defaults_for,
    in_words,
    merged,
    own_models,
    recipe_at,
    result_places,
)
from dmlprep.pipeline.project.file import Entry, Project, find_project, read_project
from dmlprep.pipeline.project.reading import Reader
from dmlprep.pipeline.project.starting import Suggestion, project_text, suggest_for

__all__ = [
    "Defaults",
    "Entry",
    "Project",
    "Reader",
    "Suggestion",
    "add",
    "defaults_for",
    "find_project",
    "in_words",
    "merged",
    "own_models",
    "project_text",
    "read_project",
    "recipe_at",
    "result_places",
    "suggest_for",
]
