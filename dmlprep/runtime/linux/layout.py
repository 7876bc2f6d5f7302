"""Where the pieces of the runtime lie, below the user's cache folder."""

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
"""What is installed, and what sessions run on, where no release is named: that of the newest target, with DirectML
1.15.4."""

NATIVE = Path(__file__).resolve().parent.parent / "native"
"""The native sources, which the package ships and the installation compiles."""


def _below(name: str) -> cached_property[Path]:
    return cached_property(lambda layout: layout.home / name)


@dataclass(frozen=True)
class Layout:
    """The folders of one installation; removing ``home`` removes the runtime."""

    home: Path

    @classmethod
    def of_user(cls) -> Layout:
        """The installation below the user's cache folder.

        Raises:
            CheckNotRun: there is no such folder.
        """
        if (cache := cache_folder()) is not None:
            return cls(cache / "dmlprep" / "runtime")
        fix = "set HOME, or set XDG_CACHE_HOME to a writable folder"
        raise CheckNotRun("this user has no home folder for the runtime", fix=fix, code="DP803")

    downloads = _below("downloads")
    root = _below("root")
    """The root file system."""
    built = _below("native")
    """What was compiled from ``NATIVE``."""
    prefix = _below("prefix")
    """Wine's prefix, copied for every worker."""
    shaders = _below("shaders")
    """Compiled shaders of the Vulkan driver; not shared with one that rounds otherwise: the keys do not know."""
    gpu_shaders = _below("shaders.gpu")
    """Compiled shaders for GPUs: a folder for each device and version of its driver, as ``shaders`` is one."""
    releases = _below("releases")
    """One folder a release of ONNX Runtime with DirectML."""
    manifest = _below("manifest.json")
    """Versions and digests of every piece."""
    inventories = _below("inventory")
    """What each piece is made of."""
    seen = _below("seen.json")
    """What later answers of mirrors and indexes are held against."""
    checks = _below("selftest")
    """Results of the self-test by release."""

    def release(self, version: str) -> Path:
        """The libraries of one release."""
        return self.releases / version

    def installed(self) -> list[str]:
        """Releases that stand here, the newest first."""
        if not self.releases.is_dir():
            return []
        pieces = {path.name: read_json(path / "piece.json") for path in self.releases.iterdir()}
        names = [name for name, piece in pieces.items() if isinstance(piece.get("libraries"), dict)]
        return sorted(names, key=lambda name: [int(part) for part in name.split(".") if part.isdigit()], reverse=True)

    def release_for(self, version: str = "") -> str:
        """The installed release to use for a version of ONNX Runtime; empty where none is installed.

        That is the version itself, else the newest of its minor version; for no version, or one that is not here, the
        default release, else the newest.
        """
        here = self.installed()
        minor = version.split(".")[:2]
        same = [release for release in here if version and release.split(".")[:2] == minor]
        for wanted in (version, *same[:1], DEFAULT_RELEASE):
            if wanted in here:
                return wanted
        return here[0] if here else ""


def read_json(path: Path) -> dict[str, Any]:
    """What ``write_json`` wrote; empty where there is none that can be read."""
    return cached_json(path, dict[str, Any], lenient=True) or {}


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a file of the installation, whole or not at all; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, sort_keys=True) + "\n")
    part.replace(path)


def native_digest() -> str:
    """SHA-256 over names and contents of the native sources."""
    digest = hashlib.sha256()
    for path in sorted(NATIVE.iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
