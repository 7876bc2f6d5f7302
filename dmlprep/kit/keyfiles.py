"""Key files on the machine that packs a kit, and checks of the seals (signatures) of ``kit.json`` and ``result.json``.

The packer's key seals the kit. Each kit has a run key, derived from it, with which the runner seals the result.
"""

from __future__ import annotations

import os
from pathlib import Path

from dmlprep.core.errors import InputError, OutputError, UsageError
from dmlprep.core.files import Unfit, check_output, read_given, remove, unreadable, unwritable
from dmlprep.core.files.writing import write_private
from dmlprep.kit.archive import Bundle
from dmlprep.portable.keys import LONGEST, PackerKey, RunKey, fits, new_packer_key, parse_packer_key


def run_key_file(kit: Path) -> Path:
    """Return the path of a kit's run key, for the person who runs the kit: ``kit.run-key`` next to ``kit.zip``."""
    return kit.with_suffix(".run-key")


def key_to_pack_with(path: Path) -> tuple[PackerKey, bool]:
    """Return the packer's key from a file, or a new one if there is no file, and whether it is new.

    A new key is not written yet; ``keep_key`` writes it.

    Raises:
        InputError: DP814, the file cannot be read or is not a key.
        OutputError: there is no file, and it cannot be created.
    """
    if os.path.lexists(path):
        return packer_key(path), False
    check_output(path)
    return new_packer_key(), True


def keep_key(key: PackerKey, path: Path) -> None:
    """Write a new packer's key to a file that only its owner can read (on Windows the folder's permissions apply).

    Raises:
        OutputError: the file exists meanwhile, or cannot be written.
    """
    try:
        write_private(path, key.line().encode("ascii"))
    except FileExistsError as error:
        what = "another run created this key at the same time"
        raise OutputError(what, where=str(path), fix="run again: it uses that key") from error


def packer_key(path: Path) -> PackerKey:
    """Return the packer's key from its file; raise InputError (DP814) if it cannot be read or is not a key."""
    fix = "pass the file that dmlprep kit --key created"
    try:
        return parse_packer_key(read_given(path, LONGEST))
    except OSError as error:
        raise unreadable(error, path, code="DP814", fix=fix) from error
    except Unfit as error:
        raise InputError(str(error), where=str(path), code="DP814", fix=error.fix) from error
    except ValueError as error:
        raise InputError(str(error), where=str(path), code="DP814", fix=fix) from error


def check_run_key(packer: Path, kit: Path, *, force: bool) -> None:
    """Raise, before the work, if the run key cannot be written or would replace the packer's own key.

    Raises:
        UsageError: both keys would have the same file.
        OutputError: the file exists (without ``force``), or cannot be written.
    """
    file = run_key_file(kit)
    if file.absolute() == packer.absolute() or (file.exists() and packer.exists() and file.samefile(packer)):
        what = "your own key has the file name of the run key"
        raise UsageError(what, where=str(packer), fix="choose another name for --key")
    check_output(file, force=force)


def write_run_key(key: RunKey, kit: Path, *, force: bool) -> Path:
    """Write a kit's run key next to the kit, and return its path; ``force`` replaces an earlier file.

    Raises:
        OutputError: the file exists (without ``force``), or cannot be written.
    """
    file = run_key_file(kit)
    try:
        if force:
            remove(file)
        write_private(file, key.line().encode("ascii"))
    except OSError as error:
        raise unwritable(error, file) from error
    return file


def check_kit_seal(key: PackerKey, document: bytes, kit: Bundle) -> None:
    """Raise InputError (DP814) if ``kit.json`` was not sealed with this key, or was changed since.

    ``document`` is the content of ``kit.json``.
    """
    seal = kit.read_seal()
    if seal is None:
        _refuse(kit, "this kit has no seal: it was packed without a key", "pack it again with --key")
    elif not fits(seal, key.seal(document)):
        what = "the kit's seal does not match this key: it was packed with another key, or changed"
        _refuse(kit, what, "pass your own copy of the kit, and the key that packed it")


def check_result_seal(key: RunKey, document: bytes, returned: Bundle) -> None:
    """Raise InputError (DP814) if ``result.json`` was not sealed with this run key, or was changed since.

    ``document`` is the content of ``result.json``.
    """
    seal = returned.read_seal()
    if seal is None:
        what = "the result is not signed, so its author is unknown"
        _refuse(returned, what, "run the kit with run.py --key and its .run-key file")
    elif not fits(seal, key.seal(document)):
        what = "the result's seal does not match: the result was changed, or made without this kit's run key"
        _refuse(returned, what, "run the kit again with run.py --key, and send that result.zip unchanged")


def _refuse(bundle: Bundle, what: str, fix: str) -> None:
    raise InputError(what, where=str(bundle.path), code="DP814", fix=fix)
