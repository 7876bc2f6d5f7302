"""Check the ONNX Runtime packages in this Python environment: conflicts and versions."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from dmlprep.record import Finding, finding
from dmlprep.runtime.types import DmlStatus

RUNTIMES = (
    *("onnxruntime", "onnxruntime-directml", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-qnn"),
    *("onnxruntime-training", "onnxruntime-windowsml", "ort-nightly", "ort-nightly-directml"),
)
"""Packages that all install the folder ``onnxruntime``, so that only one of them works."""

WITH_DIRECTML = ("onnxruntime-windowsml", "onnxruntime-directml", "ort-nightly-directml")
"""The packages of ``RUNTIMES`` with the DirectML provider. Only the first one still gets new releases."""

NEWEST_DIRECTML = "1.24.4"
"""The last release of onnxruntime-directml on PyPI, as of November 2026."""

_NEEDS = re.compile(r"(?P<name>[A-Za-z0-9._-]+) *>=(?P<least>[0-9.]+)(?P<elsewhere> *; *sys_platform != .win32.)?")
"""Matches a requirement of a package, without extras."""

LIBRARIES = ("onnx", "onnx-ir", "numpy", "ml_dtypes", "onnxsim", "onnxconverter-common", "msgspec", "click")


def installed_versions(names: Iterable[str], path: list[str] | None = None) -> dict[str, str]:
    """Return the versions of the named packages by name, for those that are installed.

    ``path`` has the folders to search (default: ``sys.path``). No package is imported.
    """
    from importlib import metadata  # slow to import, and each worker imports this module

    versions: dict[str, str] = {}
    for distribution in metadata.distributions(path=sys.path if path is None else path):
        versions.setdefault(_normal(distribution.metadata["Name"] or ""), distribution.version)
    return {name: versions[_normal(name)] for name in names if _normal(name) in versions}


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``2.4.6rc1`` becomes (2, 4, 6). Text after the last number is ignored."""
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")


def runtime_findings(path: list[str] | None = None, system: str = sys.platform) -> list[Finding]:
    """Return problems with the ONNX Runtime packages of this environment, each with the pip command that fixes it.

    The list is empty if there are none. ``path`` and ``system`` replace ``sys.path`` and ``sys.platform``.
    """
    versions = installed_versions(RUNTIMES, path)
    pip = f"{python()} -m pip"
    if not versions:
        remedy = install_line() if system == "win32" else f"{pip} install onnxruntime"
        return [finding("DP805", "no ONNX Runtime is installed", remedy=remedy)]
    names = [f"{name} {version}" for name, version in versions.items()]
    if len(names) > 1:
        wanted = WITH_DIRECTML if system == "win32" else ("onnxruntime",)
        keep = next((name for name in wanted if name in versions), next(iter(versions)))
        remedy = f"{pip} uninstall -y {' '.join(versions)} && {pip} install {keep}=={versions[keep]}"
        return [finding("DP801", f"{' and '.join(names)} overwrite each other", remedy=remedy, packages=[*versions])]
    if system == "win32" and not versions.keys() & set(WITH_DIRECTML):
        remedy = f"{pip} uninstall -y {next(iter(versions))} && {install_line()}"
        return [finding("DP803", f"{names[0]} has no DirectML provider", remedy=remedy)]
    return []


def requirement_findings(path: list[str] | None = None, system: str = sys.platform) -> list[Finding]:
    """Return a finding for each package that is older than dmlprep requires.

    The reason can be another package: pip installed the older version for it later.
    """
    from importlib import metadata

    about = metadata.distributions(name="dmlprep", path=sys.path if path is None else path)
    lines = [match for one in about for line in one.requires or () if (match := _NEEDS.fullmatch(line))]
    needs = {line["name"]: line["least"] for line in lines if system != "win32" or not line["elsewhere"]}
    return [
        finding(
            "DP806",
            f"{name} {version} is installed, but dmlprep needs {needs[name]} or newer",
            remedy=f'{python()} -m pip install "{name}>={needs[name]}"',
        )
        for name, version in installed_versions(needs, path).items()
        if version_numbers(version) < version_numbers(needs[name])
    ]


def genai_findings(path: list[str] | None = None) -> list[Finding]:
    """Return a finding if the onnxruntime-directml that the installed onnxruntime-genai-directml requires is missing.

    The list is empty if there is no such problem.
    """
    from importlib import metadata

    name, runtime = "onnxruntime-genai-directml", "onnxruntime-directml"
    version, installed = (installed_versions([one], path).get(one, "") for one in (name, runtime))
    about = metadata.distributions(name=name, path=sys.path if path is None else path)
    lines = [match for one in about for line in one.requires or () if (match := _NEEDS.match(line))]
    least = next((line["least"] for line in lines if _normal(line["name"]) == runtime), "")
    if version_numbers(installed) >= version_numbers(least):
        return []
    here = f"{installed} is installed" if installed else "it is not installed"
    text = f"{name} {version} needs {runtime} {least} or newer, but {here}"
    pip = f"{python()} -m pip"
    remedy = f'{pip} install "{runtime}>={least}"'
    if version_numbers(least) > version_numbers(NEWEST_DIRECTML):
        remedy = f"{pip} uninstall -y {name} && {pip} install onnxruntime-genai-winml; or {name}==0.13.1"
    return [finding("DP865", text, remedy=remedy)]


def dml_finding(status: DmlStatus, system: str = sys.platform) -> Finding | None:
    """Return a finding with the reason why DirectML is not available, and the fix; ``None`` if it is available."""
    if status.available:
        return None
    known = {
        ("DP803", "win32"): f"{install_line()}; see dmlprep doctor --adapters",
        ("DP804", "win32"): "update the graphics driver; see dmlprep doctor --adapters",
        ("DP803", "linux"): "run dmlprep runtime install, or use a Windows machine with a GPU",
        ("DP804", "linux"): "run dmlprep runtime remove, then dmlprep runtime install",
    }
    remedy = status.fix or known.get((status.code, system), "use a Windows machine with a GPU, or Linux on x86-64")
    return finding(status.code, f"DirectML is not available: {status.reason}", remedy=remedy)


def install_line() -> str:
    """Return the command that installs ONNX Runtime with DirectML on Windows, as text for users.

    It names two packages; only one of them may be installed.
    """
    return f"{python()} -m pip install onnxruntime-windowsml (or onnxruntime-directml, up to {NEWEST_DIRECTML})"


def python() -> str:
    """Return the path of this Python, quoted for a command line if it has a space."""
    return f'"{sys.executable}"' if " " in sys.executable else sys.executable or "python"


def system_name() -> str:
    """Return the system, its release and the machine type as one text."""
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def system_libraries() -> Path | None:
    """Return the folder System32 of this Windows; ``None`` on another system."""
    if sys.platform == "win32":
        return Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32"
    return None


def cache_folder() -> Path | None:
    """Return this user's cache folder; ``None`` if this user has none.

    It is ``$XDG_CACHE_HOME`` (XDG Base Directory Specification), by default ``~/.cache``; on Windows
    ``%LOCALAPPDATA%``.
    """
    cache = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME", "")
    if Path(cache).is_absolute():
        return Path(cache)
    if sys.platform == "win32":
        return None
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # a user without a name, which is common in containers
        return None
