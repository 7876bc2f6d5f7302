"""Targets: a release of ONNX Runtime with DirectML, and what it can run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from dmlprep.errors import UsageError

if TYPE_CHECKING:
    from dmlprep.targets.facts import NodeFacts
    from dmlprep.targets.kernels import Tables
    from dmlprep.targets.support import Support

__all__ = ["Target", "find_target", "latest_target", "target_names", "within"]

_LATEST_PACKAGE = "onnxruntime-directml"


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
        title: what it is, for people.
        feature_level: of that DirectML.dll.
        package: where it comes from (``onnxruntime-windowsml``); empty for Windows itself.
        options: the provider's options, and those of its sessions; empty where they were not read.
        opset_only: only opset and IR version are known (Windows ML in the box), no kernels.
        sources: where its numbers come from.
    """

    name: str
    ort_version: str
    directml_version: str
    max_opset: int
    max_ir: int
    dml_opset: int
    title: str = ""
    feature_level: str = ""
    package: str = ""
    options: tuple[str, ...] = ()
    opset_only: bool = False
    sources: tuple[str, ...] = ()

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version of ONNX Runtime, ``(0, 0)`` for a target of opset and IR version only."""
        if self.opset_only:
            return 0, 0
        return _release(self.ort_version)

    @property
    def tables(self) -> Tables:
        """Its kernel tables, read at first use.

        Raises:
            UsageError: only its opset and IR version are known.
        """
        if self.opset_only:
            raise UsageError(
                f"no kernels are known for {self.name}",
                fix=f"choose one of {', '.join(target_names())}",
            )
        from dmlprep.targets.kernels import load_tables

        return load_tables(self.name)

    def support(self, node: NodeFacts) -> Support:
        """Which provider has a kernel for a node, and why DirectML has none.

        Raises:
            UsageError: only opset and IR version of this target are known.
        """
        from dmlprep.targets.support import node_support

        return node_support(self.tables, node)


class _Head(msgspec.Struct):
    name: str
    title: str
    ort_version: str
    directml_version: str
    feature_level: str
    max_opset: int
    max_ir: int
    dml_opset: int
    sources: list[str]
    package: str = ""
    options: list[str] = []
    opset_only: bool = False


def _order(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.removeprefix("ort-").split(".") if part.isdigit())


def within(release: tuple[int, int], first: str, last: str | None) -> bool:
    """Whether a release (``(1, 24)``) is one from ``first`` (``1.15``) to ``last``, ``None`` for no end."""
    return _release(first) <= release and (last is None or release <= _release(last))


def _release(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


@lru_cache(maxsize=1)
def _files() -> tuple[list[str], list[str]]:
    folder = resources.files("dmlprep.targets") / "data"
    names = [f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")]
    return sorted((n for n in names if n.startswith("ort-")), key=_order), sorted(
        n for n in names if n.startswith("winml-")
    )


def target_names(*, opset_only: bool = False) -> list[str]:
    """Names of all targets, oldest first; with ``opset_only``, of those whose kernels are not known."""
    return list(_files()[1 if opset_only else 0])


@lru_cache(maxsize=32)
def _load(name: str) -> Target:
    data = (resources.files("dmlprep.targets") / "data" / f"{name}.json").read_bytes()
    head = msgspec.json.decode(data, type=_Head)
    fields = {field: getattr(head, field) for field in head.__struct_fields__}
    return Target(**{**fields, "sources": tuple(head.sources), "options": tuple(head.options)})


@lru_cache(maxsize=1)
def latest_target() -> str:
    """The name that ``latest`` stands for: the newest release of onnxruntime-directml.

    That is the package which dmlprep installs, and on which its proofs run. Newer releases come in other packages.
    """
    return [name for name in target_names() if _load(name).package == _LATEST_PACKAGE][-1]


def find_target(name: str = "latest") -> Target:
    """The target of a name; ``latest`` is the newest release of onnxruntime-directml.

    Raises:
        UsageError: there is no such target.
    """
    if name == "latest":
        name = latest_target()
    if name not in target_names() and name not in target_names(opset_only=True):
        known = ["latest", *target_names(), *target_names(opset_only=True)]
        raise UsageError(f"unknown target {name!r}", fix=f"known: {', '.join(known)}")
    return _load(name)
