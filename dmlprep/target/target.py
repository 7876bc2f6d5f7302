"""Targets: an ONNX Runtime release with DirectML, and what it loads."""

from __future__ import annotations

from dataclasses import dataclass

from dmlprep.errors import UsageError

__all__ = ["Target", "find_target", "target_names"]


@dataclass(frozen=True)
class Target:
    """One release of ONNX Runtime with the DirectML provider.

    Attributes:
        name: ``ort-1.24``.
        ort_version: ONNX Runtime's version.
        directml_version: of the DirectML.dll in the wheel.
        max_opset: highest ai.onnx opset whose models load.
        max_ir: highest IR version that loads.
        dml_opset: highest opset at which no operator of note loses its DirectML kernel by a version bump.
    """

    name: str
    ort_version: str
    directml_version: str
    max_opset: int
    max_ir: int
    dml_opset: int


_TARGETS = {"ort-1.24": Target("ort-1.24", "1.24.4", "1.15.4", 25, 13, 21)}


def target_names() -> list[str]:
    """Names of all targets, oldest first."""
    return list(_TARGETS)


def find_target(name: str = "latest") -> Target:
    """The target of a name; ``latest`` is the newest.

    Raises:
        UsageError: there is no such target.
    """
    if name == "latest":
        name = target_names()[-1]
    if name not in _TARGETS:
        raise UsageError(f"unknown target {name!r}", fix=f"known: latest, {', '.join(target_names())}")
    return _TARGETS[name]
