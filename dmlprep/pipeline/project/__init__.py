"""The project file: what ``prepare`` and its kin do by default in one folder, and for each of its models.

``dmlprep.toml``, or the table ``[tool.dmlprep]`` of ``pyproject.toml``. ``file`` finds it, ``reading`` reads it,
``defaults`` says what holds for a model and where its result goes; ``beginning`` writes one for models that are there.
"""

from dmlprep.pipeline.project.defaults import add, defaults_for, in_words, merged, own_models, recipe_at, result_places
from dmlprep.pipeline.project.file import Entry, Project, find_project, read_project
from dmlprep.pipeline.project.reading import Reader

__all__ = [
    "Entry",
    "Project",
    "Reader",
    "add",
    "defaults_for",
    "find_project",
    "in_words",
    "merged",
    "own_models",
    "read_project",
    "recipe_at",
    "result_places",
]
