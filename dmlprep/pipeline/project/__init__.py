"""The project file: defaults of ``prepare`` and similar commands in one folder, and for each of its models.

The file is ``dmlprep.toml``, or the table ``[tool.dmlprep]`` of ``pyproject.toml``. ``file`` locates it, ``reading``
reads it, ``defaults`` returns the options and the output folder of a model, and ``beginning`` writes a new one.
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
