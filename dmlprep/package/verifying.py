"""Compare every file of a package with its contract."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dmlprep.core._version import __version__
from dmlprep.core.errors import CheckNotRun, DmlprepError, InputError
from dmlprep.core.files import Unfit, check_plain, unreadable
from dmlprep.package.contract import CONTRACT, DIGEST, SIGNATURE, Contract
from dmlprep.package.packing import texts_of
from dmlprep.package.reading import REPAIR, read_contract, read_small, refuse
from dmlprep.package.signing import check_signature
from dmlprep.portable.integrity import file_digest


@dataclass(frozen=True)
class Verified:
    """The result for a package that is unchanged.

    Attributes:
        digest: SHA-256 of its contract.
        signature: the state of its signature, as a phrase for people.
        loader: ``compared``: the loader and all other texts are those of this version of dmlprep. ``signed``: another
            version wrote them, and a signature that was checked covers them. ``not compared``: another version wrote
            them, and only the digests in the contract were checked.
        others: files in the folder that the contract does not list, such as the app's own.
    """

    folder: Path
    contract: Contract
    digest: str
    signature: str
    loader: Literal["compared", "signed", "not compared"]
    others: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """The exit code: 3 if ``loader`` is ``not compared``, otherwise 0."""
        return CheckNotRun.exit_code if self.loader == "not compared" else 0


def verify(folder: Path, key: Path | None = None, *, whole: bool = True) -> Verified:
    """Check every file of a package against its contract, and return the result for an unchanged one.

    Args:
        folder: the folder of the package.
        key: file of the public key that must have signed the contract; ``None``: no signature is checked.
        whole: False for a package that was copied into an app, where only the model's files must exist. Other files
            are checked if they exist.

    Raises:
        InputError: a file is missing or changed, or is not the one that this version writes although the contract says
            so; or the key did not sign the contract. The message names the file.
        UsageError: ``key`` is set, and the package ``cryptography`` is not installed.
    """
    contract, raw = read_contract(folder)
    digest = hashlib.sha256(raw).hexdigest()
    if key is not None:
        check_signature(raw, folder / SIGNATURE, key)
    if read_small(folder / DIGEST, code="DP822", fix=REPAIR) != f"{digest}  {CONTRACT}\n".encode():
        refuse(folder / CONTRACT, f"it does not match {DIGEST}: one of the two was changed")
    _check_files(folder, contract, whole)
    compared = _check_texts(folder, contract)
    listed = {*contract.files, CONTRACT, DIGEST, SIGNATURE}
    others = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())
    signed = "signed: pass --key to check the signature" if (folder / SIGNATURE).is_file() else "not signed"
    signed = "signed with this key" if key is not None else signed
    loader: Literal["compared", "signed", "not compared"] = "signed" if key is not None else "not compared"
    strange = [name for name in others if name not in listed]
    return Verified(folder, contract, digest, signed, "compared" if compared else loader, strange)


def _check_files(folder: Path, contract: Contract, whole: bool) -> None:
    needed = contract.files if whole else contract.model_files
    for name, entry in contract.files.items():
        path = folder / name
        if linked := next((one for one in (path, path.parent) if one != folder and one.is_symlink()), None):
            refuse(linked, "it is a link")
        try:
            size = check_plain(path)
            if size != entry.bytes:
                refuse(path, f"it has {size} bytes, but {CONTRACT} lists {entry.bytes}")
            if file_digest(path)[1] != entry.sha256:
                refuse(path, f"it was changed: its SHA-256 is not the one in {CONTRACT}")
        except FileNotFoundError:
            if name in needed:
                refuse(path, "it is missing")
        except OSError as error:
            raise unreadable(error, path, code="DP822", fix=REPAIR) from error
        except Unfit as error:
            raise InputError(str(error), where=str(path), code="DP822", fix=error.fix) from error


def _check_texts(folder: Path, contract: Contract) -> bool:
    """Compare the loader, the sample and the README with those that this version of dmlprep writes for the contract.

    The contract's digests show that nothing changed since somebody wrote the contract, but not who wrote it.

    Returns:
        True if they are equal; False if another version wrote the package, so that they were not compared.

    Raises:
        InputError: the contract names this version, and a file differs, or this version does not write it.
    """
    if contract.made_by != f"dmlprep {__version__}":
        return False
    try:
        texts = texts_of(contract)
    except DmlprepError as error:
        refuse(folder / CONTRACT, f"{contract.made_by} does not write this contract: {error.what}")
    for name, entry in contract.files.items():
        if name not in texts and name not in contract.model_files:
            refuse(folder / name, f"{contract.made_by} does not write this file, though {CONTRACT} lists it")
        if name in texts and hashlib.sha256(texts[name]).hexdigest() != entry.sha256:
            refuse(folder / name, f"it is not the file that {contract.made_by} writes, though {CONTRACT} lists it")
    return True
