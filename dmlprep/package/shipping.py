"""Which files of a package an app ships, and how build systems write their names."""

from __future__ import annotations

from xml.sax.saxutils import escape

from dmlprep.package.contract import CONTRACT, DIGEST, Contract
from dmlprep.targets import find_target, target_names

__all__ = ["RUNTIME_PACKAGE", "WHEELS", "msbuild_text", "nuget_version", "shipped_files"]

RUNTIME_PACKAGE = "Microsoft.ML.OnnxRuntime.DirectML"
"""ONNX Runtime with DirectML on NuGet; it brings Microsoft.AI.DirectML along."""

WHEELS = ("onnxruntime-windowsml", "onnxruntime-directml")
"""Packages for Python with DirectML; the first one is the one that goes on (docs/directml-in-2026.md)."""

_SPECIAL = "%$@';?*()"
"""What MSBuild reads as more than a character of a name (Microsoft, "MSBuild special characters")."""


def shipped_files(contract: Contract) -> list[str]:
    """Names of the files without which no loader loads the model."""
    return [CONTRACT, DIGEST, *contract.model_files]


def nuget_version(contract: Contract) -> str:
    """Of NuGet's package with DirectML: the release of the proof, or the last that there is.

    It has the releases of ``onnxruntime-directml`` (docs/directml-in-2026.md).
    """
    releases = [find_target(name) for name in target_names()]
    last = max((one for one in releases if one.package == WHEELS[1]), key=lambda one: one.release)
    return min(find_target(contract.target.name), last, key=lambda one: one.release).ort_version


def msbuild_text(name: str) -> str:
    """A file's name as an attribute of an MSBuild project has it."""
    plain = "".join(f"%{ord(letter):02X}" if letter in _SPECIAL else letter for letter in name)
    return escape(plain, {'"': "&quot;"})
