"""Read the small files of a package: its contract (``model.json``), its digest, and keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from dmlprep.core.errors import InputError
from dmlprep.core.files import Unfit, parse_json, read_given, unreadable
from dmlprep.core.files.outputs import file_name_problem
from dmlprep.package.contract import CONTRACT, LOADER_FOLDER, Contract

REPAIR = "copy the package again completely, or create it again"
"""The remedy in errors about a damaged package."""

_DOCUMENT = 64 << 20
"""Largest size of a contract in bytes: it has some hundred bytes for each file and tensor."""


def read_small(path: Path, *, code: str, fix: str, limit: int = _DOCUMENT) -> bytes:
    """Return the content of a plain file of at most ``limit`` bytes.

    Raises:
        InputError: it is missing, too large or not a plain file, or cannot be read; with ``code`` and ``fix``.
    """
    try:
        return read_given(path, limit)
    except FileNotFoundError as error:
        raise InputError("is missing", where=str(path), code=code, fix=fix) from error
    except OSError as error:
        raise unreadable(error, path, code=code, fix=fix) from error
    except Unfit as error:
        raise InputError(str(error), where=str(path), code=code, fix=error.fix) from error


def read_contract(folder: Path) -> tuple[Contract, bytes]:
    """Read the contract (``model.json``) of a package; return it, and the content of its file as bytes.

    Every file name in it is checked to be a plain name, without folders; the loader's folder is allowed.

    Raises:
        InputError: it is missing, is not a contract, or has a name that is not allowed.
    """
    raw = read_small(folder / CONTRACT, code="DP822", fix=REPAIR)
    try:
        contract = parse_json(raw, Contract)
    except Unfit as error:
        refuse(folder / CONTRACT, f"not a contract of a package: {error}")
    names: Mapping[str, object] = contract.files
    for name in (*names, *contract.model_files):
        if wrong := file_name_problem(name.removeprefix(f"{LOADER_FOLDER}/")):
            refuse(folder / CONTRACT, f"it lists a file {name!r}, which {wrong}")
        if name not in names:
            refuse(folder / CONTRACT, f"it does not describe {name!r}")
    return contract, raw


def refuse(path: Path, what: str) -> NoReturn:
    """Raise an ``InputError`` (DP822) about a damaged file of a package; ``what`` is its message."""
    raise InputError(what, where=str(path), code="DP822", fix=REPAIR)
