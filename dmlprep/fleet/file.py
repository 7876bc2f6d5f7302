"""Read the file of a fleet. It has the fields of a project file, and ``recipes``, ``targets`` and ``sizes``.

These three are lists of choices, the axes of the matrix of jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dmlprep.core.files import Unfit, matching
from dmlprep.core.text.documents import toml_key
from dmlprep.fleet.places import is_result
from dmlprep.graph.model.pinned import Value
from dmlprep.pipeline.project import Entry, Reader

CODE = "DP905"
_PAGE = "docs/fleet.md"
_SIZE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Pattern of a valid name in ``sizes``: it becomes the name of a folder."""

_AXES = {"recipes": "recipe", "targets": "target"}

_FIELDS: dict[str, object] = {"recipes": list[str], "targets": list[str], "sizes": dict[str, dict[str, Value]]}
"""Type of each axis: lists of recipes (instead of ``recipe``) and targets (instead of ``target``), and name -> pins.

The pins of a name in ``sizes`` override ``pins``; ``sizes = {}`` removes the axis.
"""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule that excludes the jobs that match every field that is set. A field is a pattern, or a list of patterns."""

    model: str | list[str] = []
    recipe: str | list[str] = []
    target: str | list[str] = []
    size: str | list[str] = []


class _Top(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    models: dict[str, Any]
    defaults: dict[str, Any] = {}
    exclude: list[Any] = []


@dataclass(frozen=True)
class FleetFile:
    """The content of a fleet's file.

    Attributes:
        defaults: options for every model.
        models: path or pattern of models, relative to the file's folder -> options for them.
        exclude: rules for jobs to leave out.
        file: path of the file.
    """

    defaults: Entry
    models: dict[str, Entry]
    exclude: list[Rule]
    file: str

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return Path(self.file).absolute().parent

    @property
    def out(self) -> Path | None:
        """The output folder; ``None`` if the file names none.

        Raises:
            UsageError: DP905, it is outside the file's folder.
        """
        if "out" not in self.defaults:
            return None
        return _reader(Path(self.file)).inside(self.folder / self.defaults["out"], "defaults.out")

    def files(self, pattern: str) -> list[Path]:
        """Return absolute paths of the models that match a pattern, sorted by name, without results of the fleet.

        Raises:
            UsageError: DP905, no file matches.
        """
        reader = _reader(Path(self.file))
        try:
            models = matching(self.folder, pattern)
        except Unfit as error:
            raise reader.wrong(str(error), error.fix) from error
        models = [path for path in models if not is_result(path)]  # of an earlier run, below a pattern like **/*.onnx
        if not models:
            raise reader.wrong(f"no file matches models.{toml_key(pattern)}", "check the path; ** matches any folders")
        return models


def read_fleet(path: Path) -> FleetFile:
    """Return the content of a fleet's file; raise ``UsageError`` DP905 if it is wrong or belongs to another user."""
    reader = _reader(path)
    reader.check_owner()
    data = reader.document()
    if not isinstance(data.get("models"), dict) or not data["models"]:
        raise reader.wrong("it names no models", 'write [models."models/*.onnx"]; see docs/fleet.md')
    defaults = _entry(reader, data.get("defaults", {}), "defaults")
    models = {}
    for pattern, table in data["models"].items():
        name = f"models.{toml_key(pattern)}"
        models[pattern] = _entry(reader, table, name)
        if "out" in models[pattern]:
            raise reader.wrong(
                f"'{name}.out' is not allowed: a fleet has one output folder", "write out under [defaults]"
            )
    rules = []
    for number, table in enumerate(reader.table(data, _Top).exclude, 1):
        rules.append(reader.table(table, Rule, f"exclude {number}"))
        if rules[-1] == Rule():
            raise reader.wrong(f"'exclude {number}' has no field: it excludes all jobs", "set model, target or size")
    return FleetFile(defaults, models, rules, str(path))


def _reader(path: Path) -> Reader:
    return Reader(path, CODE, _PAGE, "file of a fleet")


def _entry(reader: Reader, data: object, name: str) -> Entry:
    """Return a table of the file with options and axes, after checks; ``name`` is the table's name, for errors."""
    entry = reader.entry(data, name=name, axes=_FIELDS)
    for many, one in _AXES.items():
        choices = entry.get(many)
        if choices is not None and one in entry:
            raise reader.wrong(f"'{name}' has both {one} and {many}", f"use one of the two: {many} is a list")
        if choices is not None and (not choices or len(set(choices)) < len(choices)):
            raise reader.wrong(f"'{name}.{many}' is empty or has duplicates", "list each once, or remove the field")
    for size, pins in entry.get("sizes", {}).items():
        if not _SIZE_NAME.fullmatch(size):
            fix = "use letters, digits, '-', '_' and '.': the name becomes a folder"
            raise reader.wrong(f"'{name}.sizes': {size!r} is not a valid name for sizes", fix)
        if not pins:
            raise reader.wrong(f"'{name}.sizes.{size}' pins nothing", "write { height = 320, width = 320 }")
    return entry
