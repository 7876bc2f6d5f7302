"""Read the files of a packaged model, and compare them with its contract (``model.json``)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .app_errors import PackageDamaged

CONTRACT, DIGEST = "model.json", "model.json.sha256"
FORMAT = 1

Read = Callable[[str], "bytes | None"]
"""A function that returns the content of a named file, or ``None`` if it is missing."""
_PIECE = 1 << 20


class PackageFiles:
    """The files of a package, in a folder or from a function that returns the content of a named file.

    Without ``folder`` and ``read``, the folder is that of this Python package if the contract is in it, otherwise the
    one above it.

    Attributes:
        folder: ``None`` if ``read`` returns the contents.
        contract: the content of ``model.json``.

    Raises:
        PackageDamaged: the contract or its digest is missing or changed, or the contract has an unknown format.
    """

    def __init__(self, folder: str | Path | None, read: Read | None) -> None:
        self.folder = None if read is not None else Path(folder) if folder is not None else _own_folder()
        self._read = read
        raw = self._bytes(CONTRACT)
        if self._bytes(DIGEST).decode("ascii", "replace") != f"{hashlib.sha256(raw).hexdigest()}  {CONTRACT}\n":
            raise PackageDamaged(CONTRACT, f"does not match {DIGEST}")
        contract = json.loads(raw.decode("utf-8"))
        if contract.get("format") != FORMAT:
            raise PackageDamaged(CONTRACT, f"has format {contract.get('format')}, but this loader reads {FORMAT}")
        self.contract: dict[str, Any] = contract

    def checked(self, model: Mapping[str, Any]) -> dict[str, bytes]:
        """Check the files, and return the content of the files of ``model`` as bytes, by name.

        Other files of the contract are checked only if they are in the folder. Data files in a folder are checked but
        not returned: ONNX Runtime reads them itself.

        Raises:
            PackageDamaged: a file of ``model`` is missing, or a file differs from the contract.
        """
        contents: dict[str, bytes] = {}
        for name, entry in self.contract["files"].items():
            needed = name == model["file"] or name in model["data"]
            if not needed and (self.folder is None or not (self.folder / name).is_file()):
                continue  # an app may omit the README and the sample
            size, digest, raw = self._digest(name, keep=needed and (self.folder is None or name == model["file"]))
            if size != entry["bytes"]:
                raise PackageDamaged(name, f"has {size} bytes, but {CONTRACT} lists {entry['bytes']}")
            if digest != entry["sha256"]:
                raise PackageDamaged(name, f"was changed: its SHA-256 is not the one in {CONTRACT}")
            if raw is not None:
                contents[name] = raw
        return contents

    def _digest(self, name: str, *, keep: bool) -> tuple[int, str, bytes | None]:
        if keep or self.folder is None:
            raw = self._bytes(name)
            return len(raw), hashlib.sha256(raw).hexdigest(), raw
        digest, size = hashlib.sha256(), 0
        try:
            with (self.folder / name).open("rb") as file:
                for piece in iter(lambda: file.read(_PIECE), b""):
                    digest.update(piece)
                    size += len(piece)
        except OSError as error:
            raise self._missing(name) from error
        return size, digest.hexdigest(), None

    def _bytes(self, name: str) -> bytes:
        try:
            raw = self._read(name) if self._read is not None else (self.folder or Path()).joinpath(name).read_bytes()
        except (OSError, KeyError) as error:
            raise self._missing(name) from error
        if raw is None:
            raise self._missing(name)
        return raw

    def _missing(self, name: str) -> PackageDamaged:
        return PackageDamaged(name, "is missing" if self.folder is None else f"is missing in {self.folder.absolute()}")


def _own_folder() -> Path:
    here = Path(__file__).parent
    return here if (here / CONTRACT).is_file() else here.parent
