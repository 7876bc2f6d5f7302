"""Extract the libraries from a package of ONNX Runtime with DirectML: a wheel, or npm's package.

A package may be hostile. Only files with expected paths are extracted, and only their names are used. Links are
skipped, and stated sizes are not trusted.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from dmlprep.core.errors import InputError
from dmlprep.process.failure import FULL
from dmlprep.runtime.linux.bounded import CHUNK, FAULTS, Budget, Forward, TooLarge, inflate
from dmlprep.runtime.linux.pins import ANOTHER_FILE, package_release, pin

_NEEDED = ("onnxruntime.dll", "DirectML.dll")

_LIMIT = 1 << 30
"""Limit for the unpacked size, in bytes, of a wheel's libraries and texts, or of npm's whole package. Release 1.30.0
has 43 MB and 301 MB."""

_DIRECTORY = 4 << 20
"""Limit for the size of the list of files in a wheel, in bytes; that of 1.30.0 has 32 kB."""

_WANTED = re.compile(r"onnxruntime/capi/[\w.-]+\.dll|package/bin/napi-v\d/win32/x64/[\w.-]+\.dll")
_TERMS = re.compile(r"onnxruntime/(LICENSE|ThirdPartyNotices\.txt)|package/(LICENSE|README\.md)")

_BROKEN = (
    *FAULTS, OSError, lzma.LZMAError, zlib.error, tarfile.TarError, zipfile.BadZipFile,
    # An encrypted member, a compression method that Python lacks; a nested header; invalid names and numbers.
    RuntimeError, NotImplementedError, RecursionError, ValueError, OverflowError,
)  # fmt: skip


def _files(name: str, file: BinaryIO) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield libraries and licence texts of a wheel or of npm's package as (file name, content)."""
    if name.endswith(".tgz"):
        content = Forward(inflate(file, "gz", Budget(_LIMIT, "the package")))
        with tarfile.open(fileobj=content, mode="r:") as tar:  # type: ignore[call-overload]
            for member in tar:
                tar.members = []  # otherwise it keeps them all
                wanted = _WANTED.fullmatch(member.name) or _TERMS.fullmatch(member.name)
                source = tar.extractfile(member) if wanted and member.isreg() and not member.issparse() else None
                if source is not None:
                    yield member.name.rpartition("/")[2], source
        content.finish()
        return
    _few_entries(file)
    with zipfile.ZipFile(file) as wheel:
        for info in wheel.infolist():
            if _WANTED.fullmatch(info.filename) or _TERMS.fullmatch(info.filename):
                with wheel.open(info) as source:
                    yield info.filename.rpartition("/")[2], source


def _few_entries(file: BinaryIO) -> None:
    """Raise ``TooLarge`` for a wheel with so many files that ``zipfile`` would need gigabytes for their list.

    APPNOTE 4.3.16 defines the size of the list.
    """
    file.seek(0, 2)
    file.seek(max(0, file.tell() - 22 - 0xFFFF))
    tail = file.read()
    at = len(tail) - 22 if tail[-22:].startswith(b"PK\5\6") and tail.endswith(b"\0\0") else tail.rfind(b"PK\5\6")
    if at >= 0 and int.from_bytes(tail[at + 12 : at + 16], "little") > _DIRECTORY:
        raise TooLarge("its list of files is too long")


def archive_version(archive: Path) -> str:
    """Return the version of a wheel or of npm's package, from its name.

    Raises:
        InputError: it is missing, or has another name.
    """
    what = package_release(archive.name)
    if what is None or not archive.is_file():
        wheels = ", ".join(f"onnxruntime_{name}-VERSION-...-win_amd64.whl" for name in ("directml", "windowsml"))
        fix = f"pass {wheels} or onnxruntime-node-VERSION.tgz"
        raise InputError("not a package of ONNX Runtime with DirectML", where=str(archive), fix=fix)
    return ".".join(what[1].split(".")[:3])


def unpack_libraries(archive: Path, releases: Path, known: str = "") -> str:
    """Extract the libraries of a wheel or of npm's package into ``releases/VERSION``; return the version.

    An existing folder of this version is replaced. ``known`` is the SHA-256 that the file must have; empty for any.

    Raises:
        InputError: the file is not such an archive, is broken or hostile, or has another digest.
        OSError: the disk is full, or ``releases`` cannot be written.
    """
    version = archive_version(archive)
    part = releases / f".{version}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        with archive.open("rb") as file:
            verdict, sha256 = pin(file, archive.name)
            if known and sha256 != known:
                text = f"this file has SHA-256 {sha256}, but the installed file of this name has {known}"
                raise InputError(text, where=str(archive), fix=ANOTHER_FILE)
            file.seek(0)
            digests = _take(archive.name, file, part)
        missing = [name for name in _NEEDED if name not in digests]
        if missing:
            fix = "pass the wheel for win_amd64"
            raise InputError(f"the package contains no {missing[0]}", where=str(archive), fix=fix)
        package = {"file": archive.name, "sha256": sha256, "pin": verdict}
        piece = {"release": version, "package": package, "libraries": digests}
        (part / "piece.json").write_text(json.dumps(piece, indent=1, sort_keys=True) + "\n")
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if not isinstance(error, _BROKEN) or (isinstance(error, OSError) and error.errno in FULL):
            raise  # the package is not at fault
        raise InputError(f"the package cannot be read: {error}", where=str(archive)) from error
    shutil.rmtree(releases / version, ignore_errors=True)
    part.replace(releases / version)
    return version


def _take(name: str, file: BinaryIO, part: Path) -> dict[str, str]:
    """Write the files of a package into ``part``; return the SHA-256 of each library by name."""
    digests: dict[str, str] = {}
    names: set[str] = set()  # in lower case, because Windows ignores case
    budget = Budget(_LIMIT, "the package")
    for own, source in _files(name, file):
        if own.lower() in names:
            raise ValueError(f"it contains {own} twice")
        names.add(own.lower())
        digest = hashlib.sha256()
        with (part / own).open("xb") as out:
            while data := source.read(CHUNK):
                budget.take(len(data))
                digest.update(data)
                out.write(data)
        if own.lower().endswith(".dll"):
            digests[own] = digest.hexdigest()
    return digests
