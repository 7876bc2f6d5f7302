"""Targets: releases of ONNX Runtime with DirectML, and the models that each can run."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Literal

import msgspec

from dmlprep.core.errors import UsageError
from dmlprep.directml.targets.releases import release_number

if TYPE_CHECKING:
    from dmlprep.directml.targets.facts import NodeFacts
    from dmlprep.directml.targets.kernels import Tables
    from dmlprep.directml.targets.support import Support

Kind = Literal["onnxruntime", "windowsml", "windows"]
"""Kinds of targets: releases of ONNX Runtime, releases of Windows ML (which include one of ONNX Runtime), and Windows
itself, whose kernels are unknown."""

_WINDOWSML, _WINDOWS = "windowsml-", "winml-"


@dataclass(frozen=True)
class Target:
    """One release of ONNX Runtime with the DirectML provider.

    Attributes:
        name: ``ort-1.24``, ``windowsml-2.0`` or ``winml-11``.
        directml_version: version of the DirectML.dll in the wheel.
        max_opset: highest ai.onnx opset whose models load.
        max_ir: highest IR version that loads.
        dml_opset: highest opset at which no common operator loses its DirectML kernel by a version change.
        feature_level: feature level of that DirectML.dll.
        package: name of its package (``onnxruntime-windowsml``). Empty for Windows itself, as the versions are.
        windows: the oldest Windows that its package runs on.
        served: the source of its fixes, or the end of its support, as a phrase.
        carries: the target whose kernels it has, for a release of Windows ML; empty if the kernels are its own.
        options: names of the options of the provider and of its sessions; empty if they are not known.
        opset_only: True if only opset and IR version are known (Windows ML as part of Windows), but no kernels.
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
    windows: str = ""
    served: str = ""
    carries: str = ""
    options: tuple[str, ...] = ()
    opset_only: bool = False
    sources: tuple[str, ...] = ()

    @cached_property
    def release(self) -> tuple[int, int]:
        """Major and minor version of ONNX Runtime; ``(0, 0)`` for a target of opset and IR version only."""
        return (0, 0) if self.opset_only else release_number(self.ort_version)

    @cached_property
    def tables(self) -> Tables:
        """Its kernel tables, read at first use.

        Raises:
            UsageError: only opset and IR version of this target are known.
        """
        if self.opset_only:
            raise UsageError(f"no known kernels for {self.name}", fix=f"choose one of {', '.join(target_names())}")
        from dmlprep.directml.targets.kernels import load_tables

        return load_tables(self.release)

    def support(self, node: NodeFacts) -> Support:
        """Return the provider that has a kernel for a node, and why DirectML has none.

        Raises:
            UsageError: only opset and IR version of this target are known.
        """
        from dmlprep.directml.targets.support import node_support

        return node_support(self.tables, node)


class _Head(msgspec.Struct):
    title: str
    package: str
    ort_version: str
    directml_version: str
    feature_level: str
    max_opset: int
    max_ir: int
    dml_opset: int
    sources: tuple[str, ...]
    options: tuple[str, ...] = ()


class _Kernels(msgspec.Struct):
    releases: dict[str, _Head]


class _Package(msgspec.Struct):
    windows: str
    served: str
    sources: list[str]


class _Windows(msgspec.Struct):
    title: str
    max_opset: int
    max_ir: int


class _WindowsMl(msgspec.Struct):
    package: str
    carries: str
    like: str
    compared: str
    served: str = ""


class _Releases(msgspec.Struct):
    packages: dict[str, _Package]
    windows: dict[str, _Windows]
    windowsml: dict[str, _WindowsMl]


@lru_cache(maxsize=1)
def _releases() -> _Releases:
    text = (resources.files("dmlprep.directml.targets") / "data" / "releases.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Releases)


@lru_cache(maxsize=1)
def _heads() -> dict[str, _Head]:
    data = (resources.files("dmlprep.directml.targets") / "data" / "kernels.json").read_bytes()
    return msgspec.json.decode(data, type=_Kernels).releases


@lru_cache(maxsize=1)
def _names() -> dict[Kind, list[str]]:
    return {
        "onnxruntime": list(_heads()),
        "windowsml": [f"{_WINDOWSML}{version}" for version in _releases().windowsml],
        "windows": [f"{_WINDOWS}{version}" for version in _releases().windows],
    }


def target_names(kind: Kind = "onnxruntime") -> list[str]:
    """Names of all targets of a kind, oldest first."""
    return list(_names()[kind])


@lru_cache(maxsize=64)
def _load(name: str) -> Target:
    releases = _releases()
    if name.startswith(_WINDOWSML):
        version = name.removeprefix(_WINDOWSML)
        one, package = releases.windowsml[version], releases.packages["onnxruntime-windowsml"]
        return replace(
            _load(one.like),
            name=name,
            title=f"Windows ML {version} with onnxruntime-windowsml {one.carries}",
            ort_version=".".join(one.carries.split(".")[:3]),
            package=one.package,
            windows=package.windows,
            served=one.served or f"fixes for a year from the release of Windows App SDK {version}",
            carries=one.like,
            sources=(
                f"ort_version: metadata of {one.package} on pypi.org",
                "served: learn.microsoft.com, Windows App SDK release channels: a stable release is served for a year",
                f"max_opset, max_ir, kernels and the rest: {one.like}; read from both packages: {one.compared}",
            ),
        )
    if name.startswith(_WINDOWS):
        windows, package = releases.windows[name.removeprefix(_WINDOWS)], releases.packages["Windows"]
        return Target(
            name, "", "", windows.max_opset, windows.max_ir, windows.max_opset, windows.title,
            windows=package.windows, served=package.served, opset_only=True, sources=tuple(package.sources),
        )  # fmt: skip
    head = msgspec.structs.asdict(_heads()[name])
    package = releases.packages[head["package"]]
    sources = (*head.pop("sources"), *package.sources)
    return Target(name, windows=package.windows, served=package.served, sources=sources, **head)


def latest_target() -> str:
    """The name of the newest release of ONNX Runtime with DirectML, which ``latest`` means."""
    return target_names()[-1]


def find_target(name: str = "latest") -> Target:
    """Return the target with a name; ``latest`` is the newest release of ONNX Runtime with DirectML.

    A bare number is a release of ONNX Runtime: ``1.24`` is ``ort-1.24``.

    Raises:
        UsageError: there is no such target.
    """
    if name == "latest":
        name = latest_target()
    known = [one for names in _names().values() for one in names]
    if f"ort-{name}" in known:
        name = f"ort-{name}"
    if name not in known:
        close = get_close_matches(name, known, 1, 0.7)
        fix = f"did you mean {close[0]!r}? " if close else ""
        raise UsageError(f"unknown target {name!r}", fix=f"{fix}known: {', '.join(['latest', *known])}")
    return _load(name)
