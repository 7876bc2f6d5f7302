"""Hold a package against its contract: every file, and nothing besides."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import msgspec

from dmlprep.errors import InputError
from dmlprep.files import Unfit, check_document, check_plain, unreadable
from dmlprep.files.outputs import windows_name_problem
from dmlprep.package.contract import CONTRACT, DIGEST, SIGNATURE, Contract
from dmlprep.package.reading import read_small
from dmlprep.package.signing import check_signature
from dmlprep.runtime.offsite.integrity import file_digest

__all__ = ["Verified", "read_contract", "verify"]

_FIX = "copy the package again, whole, or make it again"


@dataclass(frozen=True)
class Verified:
    """A package that is as it was made.

    Attributes:
        digest: SHA-256 of its contract.
        signature: what is known of its signature, as a phrase.
        others: files in the folder that the contract does not list, such as the app's own.
    """

    folder: Path
    contract: Contract
    digest: str
    signature: str
    others: list[str] = field(default_factory=list)


def verify(folder: Path, key: Path | None = None, *, whole: bool = True) -> Verified:
    """Check every file of a package.

    Args:
        whole: ``False`` in an app's folder, where only the model must be there: what is there must fit all the same.
        key: file of the public key that must have signed it.

    Raises:
        InputError: a file is missing or changed, or the key did not sign it; the message names the file.
        UsageError: there is a key, and ``cryptography`` is not installed.
    """
    contract, raw = read_contract(folder)
    digest = hashlib.sha256(raw).hexdigest()
    if key is not None:
        check_signature(raw, folder / SIGNATURE, key)
    _check_digest(folder, digest)
    _check_files(folder, contract, whole)
    listed = {*contract.files, CONTRACT, DIGEST, SIGNATURE}
    others = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())
    signed = "signed, but no key was given to check that" if (folder / SIGNATURE).is_file() else "not signed"
    signed = "signed with this key" if key is not None else signed
    return Verified(folder, contract, digest, signed, [name for name in others if name not in listed])


def read_contract(folder: Path) -> tuple[Contract, bytes]:
    """The contract of a package, and its bytes.

    Raises:
        InputError: it is missing, or no contract.
    """
    raw = read_small(folder / CONTRACT, code="DP822", fix=_FIX)
    try:
        check_document(msgspec.json.decode(raw))
        contract = msgspec.json.decode(raw, type=Contract)
    except (RecursionError, UnicodeDecodeError, Unfit, msgspec.DecodeError) as error:
        what = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        _refuse(folder / CONTRACT, f"no contract of a package: {what}")
    names: Mapping[str, object] = contract.files
    for name in (*names, *contract.model_files):
        if wrong := windows_name_problem(name):
            _refuse(folder / CONTRACT, f"it names a file {name!r}, which {wrong}")
        if name not in names:
            _refuse(folder / CONTRACT, f"it does not say what {name!r} is like")
    return contract, raw


def _check_digest(folder: Path, digest: str) -> None:
    if read_small(folder / DIGEST, code="DP822", fix=_FIX) != f"{digest}  {CONTRACT}\n".encode():
        _refuse(folder / CONTRACT, f"it is not the one that {DIGEST} is about: one of the two was changed")


def _check_files(folder: Path, contract: Contract, whole: bool) -> None:
    needed = contract.files if whole else contract.model_files
    for name, entry in contract.files.items():
        path = folder / name
        if path.is_symlink():
            _refuse(path, "it is a link")
        try:
            found = check_plain(path)
            if found != entry.bytes:
                _refuse(path, f"it has {found} bytes, and {CONTRACT} says {entry.bytes}")
            if file_digest(path)[1] != entry.sha256:
                _refuse(path, f"it was changed: its SHA-256 is not the one in {CONTRACT}")
        except FileNotFoundError:
            if name in needed:
                _refuse(path, "it is missing")
        except OSError as error:
            raise unreadable(error, path, code="DP822", fix=_FIX) from error
        except Unfit as error:
            raise InputError(str(error), where=str(path), code="DP822", fix=error.fix) from error


def _refuse(path: Path, what: str) -> NoReturn:
    raise InputError(what, where=str(path), code="DP822", fix=_FIX)
