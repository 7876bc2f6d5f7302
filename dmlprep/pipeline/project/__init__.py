"""The project file: defaults of ``prepare`` and similar commands in one folder, and for each of its models.

The file is ``dmlprep.toml``, or the table ``[tool.dmlprep]`` of ``pyproject.toml``. ``file`` locates it, ``reading``
reads it, ``defaults`` returns the options and the output folder of a model, and ``beginning`` writes a new one.
"""

from dmlprep.pipeline.project.defaults import (
    add,
    axes_of,
    defaults_for,
    in_words,
    merged,
    own_models,
    pins_of,
    recipe_at,
    result_places,
)
from dmlprep.pipeline.project.file import Entry, Project, Rule, find_project, read_project
from dmlprep.pipeline.project.reading import CODE

__all__ = [
    "CODE",
    "Entry",
    "Project",
    "Rule",
    "add",
    "axes_of",
    "defaults_for",
    "find_project",
    "in_words",
    "merged",
    "own_models",
    "pins_of",
    "read_project",
    "recipe_at",
    "result_places",
]
