"""The default target: the release of ONNX Runtime with DirectML that is installed here."""

from __future__ import annotations

import contextlib
import sys

from dmlprep.core.errors import CheckNotRun
from dmlprep.directml.targets import target_names
from dmlprep.directml.targets.releases import release_number
from dmlprep.runtime.environment import WITH_DIRECTML, version_numbers


def default_target(system: str = sys.platform) -> tuple[str, str]:
    """Return the name of the target that applies if the user sets none, and the reason as a clause.

    It is the release that a DirectML session here uses: on Windows that of the installed package, on Linux that of
    dmlprep's runtime. If dmlprep does not know this release, it is the nearest older one, or the oldest. If no DirectML
    is installed, it is the latest. ``system`` is a value of ``sys.platform``.
    """
    names = target_names()
    package, version = _installed(system)
    wanted = version_numbers(version)[:2]
    if not wanted:
        return names[-1], "the latest, because no DirectML is installed here"
    numbers = {name: release_number(name.removeprefix("ort-")) for name in names}
    older = [name for name in names if numbers[name] <= wanted]
    name = older[-1] if older else names[0]
    unknown = "" if numbers[name] == wanted else ", and dmlprep knows no nearer release"
    return name, f"{package} {version} is installed{unknown}"


def _installed(system: str) -> tuple[str, str]:
    """Return the name and version of the ONNX Runtime that a DirectML session here uses; both empty without one."""
    if system == "win32":
        return directml_package()
    if system.startswith("linux"):
        from dmlprep.runtime.linux.layout import Layout

        with contextlib.suppress(CheckNotRun):
            return "dmlprep's runtime with ONNX Runtime", Layout.of_user().release_for()
    return "", ""


def directml_package() -> tuple[str, str]:
    """Return the name and version of the installed package with the DirectML provider; both empty without one."""
    from importlib import metadata  # slow to import

    for package in WITH_DIRECTML:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return package, metadata.version(package)
    return "", ""
