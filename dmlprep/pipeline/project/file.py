"""Locate and read the project file.

dmlprep searches the working folder and, inside a git repository, the folders above it up to the repository's root. So
another user's file in a folder above, such as the system's temporary folder, has no effect.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dmlprep.core.errors import InputError, UsageError
from dmlprep.core.files import Unfit, is_pattern, matching
from dmlprep.core.text.documents import toml_key, toml_value
from dmlprep.graph.model.pinned import Value
from dmlprep.pipeline.project.reading import CODE, Reader
from dmlprep.portable.bounds import MOST_SIZE
from dmlprep.record.run_record import RunRecord, record_beside

NAME = "dmlprep.toml"
_PYPROJECT = "pyproject.toml"

_SIZE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Pattern of a valid name in ``sizes``: it becomes the name of a folder."""

_AXES: dict[str, object] = {"recipes": list[str], "targets": list[str], "sizes": dict[str, dict[str, Value]]}
"""Type of each axis: lists of recipes (instead of ``recipe``) and targets (instead of ``target``), and name -> pins.

The pins of a name in ``sizes`` override ``pins``; ``sizes = {}`` removes the axis.
"""

Entry = dict[str, Any]
"""A table of a project file: options of ``prepare`` by name, axes, and the folder ``out``, for one model or for all."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule that excludes the jobs that match every field that is set. A field is a pattern, or a list of patterns."""

    model: str | list[str] = []
    recipe: str | list[str] = []
    target: str | list[str] = []
    size: str | list[str] = []


@dataclass(frozen=True)
class Project:
    """The content of a project file.

    Attributes:
        defaults: options for every model; ``out`` is the folder in which each model gets a subfolder with its name.
        models: options of models, by path or pattern (``models/*.onnx``, ``**`` for any folders), relative to the file.
        file: path of the file.
        exclude: rules for jobs that ``fleet`` leaves out.
    """

    defaults: Entry
    models: dict[str, Entry]
    file: str
    exclude: list[Rule] = field(default_factory=list)
    _matches: dict[str, frozenset[Path]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return Path(self.file).absolute().parent

    @property
    def out(self) -> Path:
        """The folder for all results; ``build/models`` if the file sets none.

        Raises:
            UsageError: DP904, it is outside the file's folder.
        """
        return self.inside(self.folder / self.defaults.get("out", "build/models"))

    def inside(self, place: Path) -> Path:
        """Check that ``place``, a path for results that the file names, is inside the file's folder, and return it.

        Raises:
            UsageError: DP904, it is outside.
        """
        return Reader(Path(self.file)).inside(place, "out")

    def files(self, pattern: str) -> list[Path]:
        """Return the existing files that match a path or pattern of the file, sorted by name.

        Paths below the working folder are relative to it. A pattern does not match results of dmlprep (``is_result``).

        Raises:
            UsageError: DP904, too many files match, or the pattern is not valid.
        """
        try:
            models = matching(self.folder, pattern)
        except Unfit as error:
            raise UsageError(str(error), where=self.file, fix=error.fix, code=CODE) from error
        if is_pattern(pattern):
            models = [one for one in models if not is_result(one)]
        here = Path.cwd()
        return [one.relative_to(here) if one.is_relative_to(here) else one for one in models]

    def matches(self, pattern: str, model: Path) -> bool:
        """Return whether a pattern of the file matches a model.

        The folders are searched once for each pattern, so that many models do not take quadratic time.

        Raises:
            UsageError: as in ``files``.
        """
        if pattern not in self._matches:
            self._matches[pattern] = frozenset(one.absolute().resolve() for one in self.files(pattern))
        return model.absolute().resolve() in self._matches[pattern]


def is_result(path: Path) -> bool:
    """Return True if dmlprep wrote a model: a run record that can be read is next to it."""
    record = record_beside(path)
    with contextlib.suppress(InputError):
        return record is not None and bool(RunRecord.read(record))
    return False


def find_project(folder: Path | None = None) -> Path | None:
    """Return the path of the project file that applies in ``folder``; ``None`` if there is none.

    ``None`` as ``folder`` is the working folder. Folders above it count only inside the same git repository.

    Raises:
        UsageError: DP904, a ``pyproject.toml`` on the way cannot be read.
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
        UsageError: DP904, the file cannot be read, belongs to another user, has an unknown or wrong field, or is a
            ``pyproject.toml`` without the table.
    """
    reader = Reader(path)
    reader.check_owner()
    data = _table(path) if path.name == _PYPROJECT else reader.document()
    if data is None:
        raise reader.wrong("it has no table [tool.dmlprep]", "add it, or pass another file")
    defaults = _entry(reader, data, "", {"models": dict[str, Any], "exclude": list[Any]})
    tables, excluded = defaults.pop("models", {}), defaults.pop("exclude", [])
    models = {pattern: _entry(reader, table, f"models.{toml_key(pattern)}") for pattern, table in tables.items()}
    rules = []
    for number, table in enumerate(excluded, 1):
        rules.append(reader.table(table, Rule, f"exclude {number}"))
        if rules[-1] == Rule():
            raise reader.wrong(f"'exclude {number}' has no field: it excludes all jobs", "set model, target or size")
    return Project(defaults, models, str(path), rules)


def _entry(reader: Reader, data: object, name: str, more: dict[str, object] | None = None) -> Entry:
    """Return a table of the file with options and axes, after checks.

    Args:
        name: the table's name, for errors; empty for the top level.
        more: types of further fields, by name.
    """
    entry = reader.entry(data, name=name, axes={**_AXES, **(more or {})})
    prefix = f"{name}." if name else ""
    for many, one in (("recipes", "recipe"), ("targets", "target")):
        choices = entry.get(many)
        if choices is not None and one in entry:
            what = f"both '{prefix}{one}' and '{prefix}{many}' are set"
            raise reader.wrong(what, f"use one of the two: {many} is a list")
        if choices is not None and (not all(choices) or not choices or len(set(choices)) < len(choices)):
            raise reader.wrong(f"'{prefix}{many}' is empty or has duplicates", "list each once, or remove the field")
    sizes = {f"sizes.{size}": pins for size, pins in entry.get("sizes", {}).items()}
    for field_name, pins in {"pins": entry.get("pins", {}), **sizes}.items():
        for key, value in pins.items():
            if not key.endswith(":") and (type(value) is not int or not 0 <= value <= MOST_SIZE):
                what = f"'{prefix}{field_name}.{toml_key(key)}' is not a size: {toml_value(value)}"
                raise reader.wrong(what, f"write a whole number from 0 to {MOST_SIZE}")
    for size, pins in entry.get("sizes", {}).items():
        if not _SIZE_NAME.fullmatch(size):
            fix = "use letters, digits, '-', '_' and '.': the name becomes a folder"
            raise reader.wrong(f"'{prefix}sizes': {size!r} is not a valid name for sizes", fix)
        if not pins:
            raise reader.wrong(f"'{prefix}sizes.{size}' pins nothing", "write { height = 320, width = 320 }")
    return entry


def _table(path: Path) -> dict[str, object] | None:
    tool = Reader(path).document().get("tool")
    table = tool.get("dmlprep") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None
