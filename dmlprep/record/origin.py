"""Where and when a run took place."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import msgspec

from dmlprep.core._version import __version__

_PACKAGES = ("onnx", "onnx-ir", "onnxruntime", "onnxruntime-windowsml", "onnxruntime-directml", "onnxsim")


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """When, where and how a run was started. It names neither the user nor the computer.

    Attributes:
        date: start of the run, UTC, ISO 8601 to the second.
        command_line: empty for a call from Python.
        system: operating system and processor's architecture.
        versions: versions of Python, dmlprep and its packages.
    """

    date: str
    command_line: str = ""
    system: str = ""
    processors: int = 0
    versions: dict[str, str] = {}


def origin(command_line: str = "") -> Origin:
    """Return the origin of a run that begins now."""
    return Origin(
        date=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        command_line=command_line,
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        processors=os.cpu_count() or 0,
        versions={"Python": platform.python_version(), "dmlprep": __version__, **_installed()},
    )


def _installed() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
