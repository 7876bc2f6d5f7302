"""Which files of a package an app ships, and how build systems write their names."""

from __future__ import annotations

from dmlprep.directml.targets import find_target, target_names
from dmlprep.package.contract import CONTRACT, DIGEST, Contract

RUNTIME_PACKAGE = "Microsoft.ML.OnnxRuntime.DirectML"
"""ONNX Runtime with DirectML on NuGet; it brings Microsoft.AI.DirectML along."""

WHEELS = ("onnxruntime-windowsml", "onnxruntime-directml")
"""Packages for Python with DirectML; the first one is the one that goes on (docs/directml-in-2026.md)."""


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
