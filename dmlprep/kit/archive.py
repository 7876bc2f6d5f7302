"""Read a kit, or the result of a kit: a zip, or the folder that it was extracted to. A zip is never extracted.

A zip from outside is treated as hostile. It has a document (``kit.json`` or ``result.json``) that lists its files. The
sizes are checked against that list before any other file is read.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from tokenize import TokenError
from typing import IO

import numpy as np

from dmlprep.core.errors import InputError
from dmlprep.core.files import Unfit, check_plain, explain
from dmlprep.core.files.outputs import file_name_problem
from dmlprep.portable.arrays import Array
from dmlprep.portable.keys import LONGEST
from dmlprep.record.buckets import FileEntry

_DOCUMENT_BYTES = 64 << 20
"""Most bytes of kit.json or result.json: some hundred bytes for each feed, output and file."""

_PIECE = 1 << 20

_KINDS = "biufU"
"""Kinds (``dtype.kind``) of arrays that may be read: never objects, which would be pickles."""


def _safe(name: str) -> bool:
    """Return True if a file's name in a zip stays inside the zip's folder and is valid on any system."""
    return not any(map(file_name_problem, name.split("/")))


class Bundle:
    """The files of a kit or result by name; a context manager, which closes the zip.

    Args:
        path: the zip, the folder that it was extracted to, or the document in that folder.
        document: name of the file that lists the others (``kit.json``, ``result.json``).
        seal: name of the file with the signature of the document; the document does not list it.

    Raises:
        InputError: there is no such file, it is not a zip, is encrypted, lacks the document, or has hostile names.
    """

    def __init__(self, path: Path, document: str, seal: str) -> None:
        self.path = path
        self.document = document
        self.seal = seal
        self._zip: zipfile.ZipFile | None = None
        self._members: dict[str, zipfile.ZipInfo] = {}
        if path.name == document and path.is_file():
            self._folder = path.parent
        elif path.is_dir():
            self._folder = path
        else:
            self._folder = path.parent
            self._open_zip()
        if not self._has(document):
            raise self.wrong(f"contains no {document}", f"pass the {document.partition('.')[0]}.zip")

    def _open_zip(self) -> None:
        try:
            check_plain(self.path)
            self._zip = zipfile.ZipFile(self.path)
        except FileNotFoundError as error:
            raise self.wrong("no such file", "check the path") from error
        except Unfit as error:
            raise self.wrong(str(error), error.fix) from error
        except (OSError, zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, ValueError) as error:
            what, fix = explain(error, self.path) if isinstance(error, OSError) else ("", "")
            if what:
                raise self.wrong(what, fix) from error
            raise self.wrong(f"not a zip, or truncated: {error}", "copy it again completely") from error
        for info in self._zip.infolist():
            if info.is_dir():
                continue
            name, wrong, fix = info.filename, "", "do not use this file"
            if not _safe(name):
                wrong = f"contains an unsafe file name: {name!r}"
            elif name in self._members:
                wrong = f"contains {name!r} twice"
            elif info.flag_bits & 1:
                wrong, fix = f"{name!r} is encrypted", "send it without a password"
            if wrong:
                self._zip.close()
                raise self.wrong(wrong, fix)
            self._members[name] = info

    def wrong(self, what: str, fix: str) -> InputError:
        """Return an error (DP810) about this zip or folder."""
        return InputError(what, where=str(self.path), code="DP810", fix=fix)

    def _has(self, name: str) -> bool:
        return name in self._members if self._zip is not None else (self._folder / name).is_file()

    def size(self, name: str) -> int:
        """Return a file's unpacked size in bytes; raise InputError if the file is missing.

        In a zip, it is the declared size, which the content may not have.
        """
        if not self._has(name):
            raise self.wrong(f"{name} is missing", "copy it again completely")
        return self._members[name].file_size if self._zip is not None else (self._folder / name).stat().st_size

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for reading in a ``with`` block; the caller has checked its ``size``.

        Raises:
            InputError: the file is damaged, a link, or cannot be read.
        """
        try:
            if self._zip is not None:
                with self._zip.open(self._members[name]) as file:
                    yield file
            else:
                path = self._folder / name
                inside = path.resolve().is_relative_to(self._folder.resolve())
                if path.is_symlink() or not inside:
                    raise self.wrong(f"{name} is a link", "copy the files themselves")
                check_plain(path)
                with path.open("rb") as plain:
                    yield plain
        except (OSError, EOFError, Unfit, RuntimeError, zipfile.BadZipFile, zlib.error, LZMAError) as error:
            what, fix = explain(error, self._folder / name) if isinstance(error, OSError) else ("", "")
            if what:
                raise self.wrong(f"{name} {what}", fix) from error
            raise self.wrong(f"{name} is damaged: {error}", "copy it again completely") from error

    def read_document(self) -> bytes:
        """Return the content of the document as bytes; raise InputError if it is damaged or larger than 64 MiB."""
        return self._read(self.document, _DOCUMENT_BYTES)

    def read_seal(self) -> bytes | None:
        """Return the content of the document's seal file as bytes; ``None`` if there is no such file.

        Raises:
            InputError: the file is damaged or larger than 1 KiB.
        """
        return self._read(self.seal, LONGEST) if self._has(self.seal) else None

    def _read(self, name: str, most: int) -> bytes:
        if (size := self.size(name)) > most:
            raise self.wrong(f"{name} is {size} bytes long", "do not use this file")
        with self.open(name) as file:
            return file.read(most)

    def check_files(self, files: Mapping[str, FileEntry], *, most: int | None = None) -> None:
        """Compare all files with the list in the document: names, sizes and SHA-256; it reads 1 MiB at a time.

        Args:
            files: the list: name -> size and SHA-256.
            most: largest allowed size of all files together, in bytes; ``None`` for no limit.

        Raises:
            InputError: a listed file is missing, has an unsafe name or another size or content, or all are larger than
                ``most``. Or a zip has a file that is not in the list; a folder may have others.
        """
        for name in files:
            if not _safe(name):
                raise self.wrong(f"{self.document} lists an unsafe file name: {name!r}", "do not use this file")
        if self._zip is not None:
            strange = sorted(set(self._members) - set(files) - {self.document, self.seal})
            if strange:
                raise self.wrong(
                    f"contains {strange[0]!r}, which {self.document} does not list", "do not use this file"
                )
        total = sum(entry.bytes for entry in files.values())
        if most is not None and total > most:
            raise self.wrong(f"its files have {total} bytes, at most {most} are possible", "do not use this file")
        for name, entry in files.items():
            fix = "copy it again completely"
            if (size := self.size(name)) != entry.bytes:
                raise self.wrong(f"{name} has {size} bytes, {self.document} lists {entry.bytes}", fix)
            if self._digest(name, entry.bytes) != entry.sha256:
                raise self.wrong(f"{name} was changed: its SHA-256 is not the one in {self.document}", fix)

    def _digest(self, name: str, size: int) -> str:
        digest = hashlib.sha256()
        remaining = size
        with self.open(name) as file:
            # Never more than the document lists, however large the member unpacks.
            while remaining and (piece := file.read(min(_PIECE, remaining))):
                digest.update(piece)
                remaining -= len(piece)
            if remaining or file.read(1):
                raise self.wrong(f"{name} does not have the announced {size} bytes", "copy it again completely")
        return digest.hexdigest()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *_: object) -> None:
        if self._zip is not None:
            self._zip.close()


def read_array(bundle: Bundle, name: str) -> Array:
    """Return an array from a ``.npy`` file that ``check_files`` has checked; text becomes an array of objects.

    Raises:
        InputError: the file is not a plain array, or its header does not match its length.
    """
    size = bundle.size(name)
    try:
        with bundle.open(name) as file:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(
                version
            )
            if read is None:
                raise ValueError(f"version {version} of .npy")
            shape, fortran, dtype = read(file)
            count = 1
            for length in shape:
                count *= length
            if dtype.kind not in _KINDS or not dtype.itemsize or count < 0 or count * dtype.itemsize > size:
                raise ValueError(f"shape {shape} of {dtype} does not fit {size} bytes")
            raw = file.read(count * dtype.itemsize)
            if len(raw) != count * dtype.itemsize or file.read(1):
                raise ValueError("its length does not match its shape")
        flat = np.frombuffer(raw, dtype=dtype) if raw else np.empty(0, dtype)
        array = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError, OverflowError) as error:
        raise bundle.wrong(f"{name} is not a plain array: {error}", "send it again, as run.py wrote it") from error
    return array.astype(object) if dtype.kind == "U" else array
