"""Read the small files of a package and its keys; the contract is one of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from dmlprep.core.errors import InputError
from dmlprep.core.files import Unfit, parse_json, read_given, unreadable
from dmlprep.core.files.outputs import file_name_problem
from dmlprep.package.contract import CONTRACT, Contract

REPAIR = "copy the package again completely, or create it again"
"""The remedy for a damaged package."""

_DOCUMENT = 64 << 20
"""Bytes of the largest contract: some hundred for each file and tensor."""


def read_small(path: Path, *, code: str, fix: str, limit: int = _DOCUMENT) -> bytes:
    """Read a plain file of at most ``limit`` bytes; ``code`` and ``fix`` are for the error."""
    try:
        return read_given(path, limit)
    except FileNotFoundError as error:
        raise InputError("is missing", where=str(path), code=code, fix=fix) from error
    except OSError as error:
        raise unreadable(error, path, code=code, fix=fix) from error
    except Unfit as error:
        raise InputError(str(error), where=str(path), code=code, fix=error.fix) from error


def read_contract(folder: Path) -> tuple[Contract, bytes]:
    """Return the contract of a package, and its bytes. Every name in it is a plain file name."""
    raw = read_small(folder / CONTRACT, code="DP822", fix=REPAIR)
    try:
        contract = parse_json(raw, Contract)
    except Unfit as error:
        refuse(folder / CONTRACT, f"not a contract of a package: {error}")
    names: Mapping[str, object] = contract.files
    for name in (*names, *contract.model_files):
        if wrong := file_name_problem(name):
            refuse(folder / CONTRACT, f"it lists a file {name!r}, which {wrong}")
        if name not in names:
            refuse(folder / CONTRACT, f"it does not describe {name!r}")
    return contract, raw


def refuse(path: Path, what: str) -> NoReturn:
    """Raise an ``InputError`` about a file of a package."""
    raise InputError(what, where=str(path), code="DP822", fix=REPAIR)
