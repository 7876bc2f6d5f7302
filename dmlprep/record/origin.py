"""The origin of a run (date, machine, versions), and a digest of dmlprep's code."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from dmlprep.core._version import __version__

_PACKAGES = ("onnx", "onnx-ir", "onnxruntime", "onnxruntime-windowsml", "onnxruntime-directml", "onnxsim")

_CODE = (".py", ".json", ".c", ".h", ".spec", ".sh")
"""Suffixes of the files in the digest: code, tables of releases, and the native host program."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Date (UTC, ISO 8601), machine and versions of a run.

    They name neither the user nor the computer, except for paths in ``command_line``, which is empty for a call from
    Python.
    """

    date: str
    command_line: str = ""
    system: str = ""
    processors: int = 0
    versions: dict[str, str] = {}


def origin(command_line: str = "") -> Origin:
    """Return the origin of a run that begins now, on this machine."""
    return Origin(
        date=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        command_line=command_line,
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        processors=os.cpu_count() or 0,
        versions=dict(_versions()),
    )


@cache
def _versions() -> dict[str, str]:
    """Return the versions of Python, dmlprep and ``_PACKAGES``; cached, because package metadata is slow to read."""
    versions = {"Python": platform.python_version(), "dmlprep": __version__}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


@cache
def code_digest() -> str:
    """Return the SHA-256 over dmlprep's files with a suffix of ``_CODE``, a part of the keys of cached results.

    It is computed once in a process.

    Raises:
        OSError: a file cannot be read.
    """
    folder = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _CODE and path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
