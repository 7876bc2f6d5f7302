"""Where the pieces of the runtime lie, below the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlprep.core.errors import CheckNotRun
from dmlprep.core.files import cached_json

DEFAULT_RELEASE = "1.30.0"
"""What is installed, and what sessions run on, where no release is named: that of the newest target, with DirectML
1.15.4."""

NATIVE = Path(__file__).resolve().parent.parent / "native"
"""The native sources, which the package ships and the installation compiles."""


@dataclass(frozen=True)
class Layout:
    """The folders of one installation.

    Attributes:
        home: all of it; removing it removes the runtime.
    """

    home: Path

    @classmethod
    def of_user(cls) -> Layout:
        """Below ``$XDG_CACHE_HOME`` (XDG Base Directory Specification), by default ``~/.cache``.

        Raises:
            CheckNotRun: neither is known.
        """
        cache = os.environ.get("XDG_CACHE_HOME", "")
        if cache.startswith("/"):
            return cls(Path(cache) / "dmlprep" / "runtime")
        try:
            return cls(Path.home() / ".cache" / "dmlprep" / "runtime")
        except RuntimeError:  # a user that the system does not know, as containers have them
            fix = "set HOME, or XDG_CACHE_HOME to a folder that can be written"
            raise CheckNotRun("this user has no home folder to keep the runtime in", fix=fix, code="DP803") from None

    @property
    def downloads(self) -> Path:
        return self.home / "downloads"

    @property
    def root(self) -> Path:
        """The root file system."""
        return self.home / "root"

    @property
    def built(self) -> Path:
        """What was compiled from ``NATIVE``."""
        return self.home / "native"

    @property
    def prefix(self) -> Path:
        """Wine's prefix, copied for every worker."""
        return self.home / "prefix"

    @property
    def shaders(self) -> Path:
        """Compiled shaders of the Vulkan driver; not shared with one that rounds otherwise: the keys do not know."""
        return self.home / "shaders"

    @property
    def gpu_shaders(self) -> Path:
        """Compiled shaders for GPUs: a folder for each device and version of its driver, as ``shaders`` is one."""
        return self.home / "shaders.gpu"

    @property
    def releases(self) -> Path:
        """One folder a release of ONNX Runtime with DirectML."""
        return self.home / "releases"

    @property
    def manifest(self) -> Path:
        """Versions and digests of every piece."""
        return self.home / "manifest.json"

    @property
    def inventories(self) -> Path:
        """What each piece is made of."""
        return self.home / "inventory"

    @property
    def seen(self) -> Path:
        """What later answers of mirrors and indexes are held against."""
        return self.home / "seen.json"

    @property
    def checks(self) -> Path:
        """Results of the self-test by release."""
        return self.home / "selftest"

    def release(self, version: str) -> Path:
        """The libraries of one release."""
        return self.releases / version

    def installed(self) -> list[str]:
        """Releases that stand here, the newest first."""
        if not self.releases.is_dir():
            return []
        found = [
            path.name
            for path in self.releases.iterdir()
            if isinstance(read_json(path / "piece.json").get("libraries"), dict)
        ]
        return sorted(
            found, key=lambda version: [int(part) for part in version.split(".") if part.isdigit()], reverse=True
        )

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
