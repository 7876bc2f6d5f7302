"""The folders of the runtime, below the user's cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dmlprep.core.errors import CheckNotRun
from dmlprep.core.files import cached_json
from dmlprep.runtime.environment import cache_folder

DEFAULT_RELEASE = "1.30.0"
"""The release that is installed and used by default: the one of the newest target, with DirectML 1.15.4."""

NATIVE = Path(__file__).resolve().parent.parent / "native"
"""The native sources, which the package contains and the installation compiles."""


def _below(name: str) -> cached_property[Path]:
    return cached_property(lambda layout: layout.home / name)


@dataclass(frozen=True)
class Layout:
    """The folders of one installation. To remove the runtime, remove ``home``."""

    home: Path

    @classmethod
    def of_user(cls) -> Layout:
        """Return the installation below the user's cache folder; it need not exist.

        Raises:
            CheckNotRun: this user has no cache folder.
        """
        if (cache := cache_folder()) is not None:
            return cls(cache / "dmlprep" / "runtime")
        fix = "set HOME, or set XDG_CACHE_HOME to a writable folder"
        raise CheckNotRun("this user has no home folder for the runtime", fix=fix, code="DP803")

    downloads = _below("downloads")
    root = _below("root")
    """The root file system."""
    built = _below("native")
    """The programs compiled from ``NATIVE``."""
    prefix = _below("prefix")
    """Wine's prefix, which every worker copies."""
    shaders = _below("shaders")
    """Compiled shaders of the CPU driver. A driver with other rounding needs another folder, because the keys are
    the same."""
    gpu_shaders = _below("shaders.gpu")
    """Compiled shaders for GPUs: a folder like ``shaders`` for each device and version of its driver."""
    releases = _below("releases")
    """One folder for each release of ONNX Runtime with DirectML."""
    manifest = _below("manifest.json")
    """Versions and digests of every piece."""
    inventories = _below("inventory")
    """The list of files of each piece."""
    history = _below("seen.json")
    """Dates and digests of earlier downloads, to compare with later ones."""
    checks = _below("selftest")
    """Results of the self-test by release."""

    def release(self, version: str) -> Path:
        """Return the folder with the libraries of one release."""
        return self.releases / version

    def installed(self) -> list[str]:
        """Return the installed releases, the newest first."""
        if not self.releases.is_dir():
            return []
        pieces = {path.name: read_json(path / "piece.json") for path in self.releases.iterdir()}
        names = [name for name, piece in pieces.items() if isinstance(piece.get("libraries"), dict)]
        return sorted(names, key=lambda name: [int(part) for part in name.split(".") if part.isdigit()], reverse=True)

    def release_for(self, version: str = "") -> str:
        """Return the installed release to use for a version of ONNX Runtime; empty if none is installed.

        The order is: the same version, the newest one with the same minor version, the default release, the newest
        release.
        """
        here = self.installed()
        minor = version.split(".")[:2]
        same = [release for release in here if version and release.split(".")[:2] == minor]
        for wanted in (version, *same[:1], DEFAULT_RELEASE):
            if wanted in here:
                return wanted
        return here[0] if here else ""


def read_json(path: Path) -> dict[str, Any]:
    """Return the data that ``write_json`` wrote; empty if the file is missing or broken."""
    return cached_json(path, dict[str, Any], lenient=True) or {}


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a file of the installation atomically as JSON; make its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, sort_keys=True) + "\n")
    part.replace(path)


def native_digest() -> str:
    """Return the SHA-256 over names and contents of the native sources."""
    digest = hashlib.sha256()
    for path in sorted(NATIVE.iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
