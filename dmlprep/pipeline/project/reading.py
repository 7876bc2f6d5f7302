"""Read the project file, and report faults with their fixes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from dmlprep.core.errors import RecipeError, UsageError
from dmlprep.core.files import NotToml, Unfit, check_document, explain, meant, parse_toml, read_text
from dmlprep.graph.model.pinned import Value
from dmlprep.passes.catalog import suggest, wrong_value
from dmlprep.pipeline.options import OPTIONS, Option
from dmlprep.pipeline.recipe import read_settings

CODE = "DP904"
"""Finding code of faults in a project file."""

_PAGE = "docs/project-file.md"
_BYTES = 1 << 20

T = TypeVar("T", bound=msgspec.Struct)


@cache  # a fleet has a table for each of its models
def _entry_type(axes: tuple[tuple[str, object], ...]) -> type[msgspec.Struct]:
    """Return the msgspec type of a table with options of ``prepare``, to check the table.

    Its fields are the options that files accept, ``out``, and ``axes``: pairs of name and type.
    """
    fields = {name: _field_type(one) for name, one in OPTIONS.items() if one.in_files}
    fields |= {"settings": list[str], "pins": dict[str, Value], "out": str, **dict(axes)}
    every = [(name, kind | None, None) for name, kind in fields.items()]
    return msgspec.defstruct("Entry", every, frozen=True, forbid_unknown_fields=True, kw_only=True)


def _field_type(one: Option) -> Any:
    if one.choices:
        return Literal[one.choices]
    if one.kind is list:
        return list[str]
    return one.kind if one.least is None else Annotated[one.kind, msgspec.Meta(ge=one.least, le=one.most)]


class Reader:
    """Reader of the project file at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def wrong(self, what: str, fix: str) -> UsageError:
        """Return (do not raise) the error about a fault in the file, with a fix."""
        return UsageError(what, where=str(self.path), fix=fix, code=CODE)

    def document(self) -> dict[str, Any]:
        """Read the file and return its content as nested dictionaries.

        Raises:
            UsageError: DP904, it cannot be read, is larger than 1 MiB, or is not valid TOML.
        """
        try:
            data = parse_toml(read_text(self.path, _BYTES))
            check_document(data)
        except OSError as error:
            what, fix = explain(error, self.path)
            what = what or f"cannot be read: {error.strerror or error}"
            raise self.wrong(what, fix or meant(self.path, "check the path")) from error
        except NotToml as error:
            raise self.wrong(str(error), f"see {_PAGE}") from error
        except Unfit as error:
            raise self.wrong(str(error), error.fix) from error
        return data

    def table(self, data: object, kind: type[T], name: str = "", **more: object) -> T:
        """Convert a table of the file to the type ``kind``, and return it.

        Args:
            data: the table as ``document`` returns it.
            name: name of the table in the file, for errors; empty for the top level.
            more: values of fields that the file must not set.

        Raises:
            UsageError: ``data`` is not a table, or has an unknown or ill-typed field.
        """
        if not isinstance(data, Mapping):
            raise self.wrong(f"'{name}' is not a table", f"write it as [{name}]; see {_PAGE}")
        fields = [field for field in kind.__struct_fields__ if field not in more]
        prefix = f"{name}." if name else ""
        for key in data:
            if key not in fields:
                raise self.wrong(f"unknown field '{prefix}{key}'", suggest(key, fields))
        try:
            return msgspec.convert({**data, **more}, kind)
        except msgspec.ValidationError as error:
            raise self.wrong(*wrong_value(error, kind, within=prefix, page=_PAGE)) from error

    def entry(self, data: object, *, name: str = "", axes: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return the fields that a table sets, by name, after a check: options of ``prepare``, and those of ``axes``.

        Args:
            data: the table as ``document`` returns it.
            name: name of the table in the file, for errors; empty for the top level.
            axes: types of further fields that the table may have, by name.

        Raises:
            UsageError: ``data`` is not a table, or has an unknown or ill-typed field.
        """
        table = self.table(data, _entry_type(tuple((axes or {}).items())), name)
        values = {field: getattr(table, field) for field in data} if isinstance(data, dict) else {}
        if "settings" in values:
            try:
                values["settings"] = read_settings(values["settings"])
            except RecipeError as error:
                field = f"{name}.settings" if name else "settings"
                raise self.wrong(f"field '{field}': {error.what}", error.fix) from error
        return values

    def inside(self, place: Path, name: str) -> Path:
        """Check that ``place``, a path for results, is inside the file's folder, and return it. Links are followed.

        Args:
            name: the field of the file with the path, for errors.

        Raises:
            UsageError: the path leads out of the folder: the user has to set it on the command line instead.
        """
        folder, led = (Path(os.path.realpath(one)) for one in (self.path.absolute().parent, place))
        if not led.is_relative_to(folder):
            raise self.wrong(
                f"'{name}' is outside the folder of the project file: {led}",
                "add -o FOLDER to the command ('--out'; out= in Python) for results there, or choose a folder inside",
            )
        return place

    def check_owner(self) -> None:
        """Check that the file belongs to this user or to root: it can name code that dmlprep runs (``metric``).

        On Windows, nothing is checked.

        Raises:
            UsageError: the file belongs to another user.
        """
        if os.name == "posix":
            try:
                owner = self.path.stat().st_uid
            except OSError:
                return  # reading it reports why
            if owner not in (os.getuid(), 0):
                raise self.wrong("the project file belongs to another user", "own it, or ignore it with --no-project")
