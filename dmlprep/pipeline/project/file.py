"""Locate and read the project file.

dmlprep searches the working folder and, inside a git repository, the folders above it up to the repository's root. So
another user's file in a folder above, such as the system's temporary folder, has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlprep.core.errors import UsageError
from dmlprep.core.files import Unfit, matching
from dmlprep.core.text.documents import toml_key
from dmlprep.pipeline.project.reading import Reader

NAME = "dmlprep.toml"
_PYPROJECT = "pyproject.toml"

Entry = dict[str, Any]
"""A table of a project file: options of ``prepare`` by name, and the folder ``out``, for one model or for all."""


@dataclass(frozen=True)
class Project:
    """The content of a project file.

    Attributes:
        defaults: options for every model; ``out`` is the folder in which each model gets a subfolder with its name.
        models: options of models, by path or pattern (``models/*.onnx``, ``**`` for any folders), relative to the file.
        file: path of the file.
    """

    defaults: Entry
    models: dict[str, Entry]
    file: str

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return Path(self.file).absolute().parent

    def inside(self, place: Path) -> Path:
        """Check that ``place``, a path for results that the file names, is inside the file's folder, and return it.

        Raises:
            UsageError: DP904, it is outside.
        """
        return _reader(Path(self.file)).inside(place, "out")

    def files(self, pattern: str) -> list[Path]:
        """Return the existing files that match a path or pattern of the file, sorted by name.

        Paths below the working folder are relative to it.

        Raises:
            UsageError: too many files match.
        """
        try:
            models = matching(self.folder, pattern)
        except Unfit as error:
            raise UsageError(str(error), where=self.file, fix=error.fix, code="DP904") from error
        here = Path.cwd()
        return [one.relative_to(here) if one.is_relative_to(here) else one for one in models]


def find_project(folder: Path | None = None) -> Path | None:
    """Return the path of the project file that applies in ``folder``; ``None`` if there is none.

    ``None`` as ``folder`` is the working folder. Folders above it count only inside the same git repository.
    """
    start = (folder or Path.cwd()).absolute()
    above = [start, *start.parents]
    root = next((number for number, one in enumerate(above) if (one / ".git").exists()), 0)
    for one in above[: root + 1]:
        if (one / NAME).is_file():
            return one / NAME
        if (one / _PYPROJECT).is_file() and _table(one / _PYPROJECT) is not None:
            return one / _PYPROJECT
    return None


def read_project(path: Path) -> Project:
    """Read ``dmlprep.toml``, or ``[tool.dmlprep]`` of a ``pyproject.toml``.

    Raises:
        UsageError: DP904, the file cannot be read, belongs to another user, or has an unknown field or a wrong type.
    """
    reader = _reader(path)
    reader.check_owner()
    data = _table(path) if path.name == _PYPROJECT else reader.document()
    if data is None:
        raise reader.wrong("it has no table [tool.dmlprep]", "add it, or pass another file")
    defaults = reader.entry(data, axes={"models": dict[str, Any]})
    tables = defaults.pop("models", {})
    models = {pattern: reader.entry(table, name=f"models.{toml_key(pattern)}") for pattern, table in tables.items()}
    return Project(defaults, models, str(path))


def _reader(path: Path) -> Reader:
    return Reader(path, "DP904", "docs/project-file.md", "project file", "ignore it with --no-project")


def _table(path: Path) -> dict[str, object] | None:
    tool = _reader(path).document().get("tool")
    table = tool.get("dmlprep") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None
