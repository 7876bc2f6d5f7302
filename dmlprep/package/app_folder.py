"""Find which onnxruntime.dll and DirectML.dll an app's folder loads on Windows, and whether they fit its models.

Windows searches a library in the folder of the program, then in System32, which has an onnxruntime.dll of its own. ONNX
Runtime searches DirectML.dll in its own folder, then in System32 too. No file of the app runs, and every file may be
hostile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from dmlprep.core.errors import InputError
from dmlprep.core.files import Unfit, unreadable
from dmlprep.core.files.windows_image import Image, NotAnImage, read_image
from dmlprep.package.contract import CONTRACT, DIGEST, TargetVersions
from dmlprep.package.reading import read_contract
from dmlprep.package.verifying import verify
from dmlprep.record import Finding, Severity, finding

_RUNTIME, _DIRECTML, _SHARED = "onnxruntime.dll", "directml.dll", "onnxruntime_providers_shared.dll"
_PYTHON = "onnxruntime_pybind11_state.pyd"
"""File of ONNX Runtime for Python, which contains the whole runtime and needs no onnxruntime.dll."""
_FILES, _IMAGES = 50_000, 2000
_REDISTRIBUTABLE = ("msvcp140", "vcruntime140")


@dataclass(frozen=True)
class Library:
    """A library that the app loads.

    Attributes:
        path: its path below the app's folder; empty for the library of Windows itself.
        version: its file version (for ONNX Runtime, the first two numbers are the release); ``?`` if unknown.
        machine: its processor architecture; ``?`` if unknown.
    """

    path: str
    version: str = "?"
    machine: str = "?"


@dataclass(frozen=True)
class Place:
    """A folder with ONNX Runtime, or with programs that load it, and the libraries that are loaded for it.

    Attributes:
        folder: its path below the app's folder.
        programs: names of the programs (.exe) in it.
        onnxruntime: the ONNX Runtime that is loaded.
        directml: the DirectML that this ONNX Runtime loads; ``None`` if it loads none, or cannot be read.
    """

    folder: str
    programs: list[str]
    onnxruntime: Library
    directml: Library | None


@dataclass(frozen=True)
class PackagedHere:
    """A package of dmlprep in the app's folder, and the oldest ONNX Runtime and DirectML that its model needs."""

    folder: str
    lowest_onnxruntime: str
    lowest_directml: str


@dataclass(frozen=True)
class AppReport:
    """The result of inspecting an app's folder.

    Attributes:
        places: folders with ONNX Runtime or with programs that load it, and the libraries that are loaded.
        models: packages of dmlprep.
        findings: the problems.
    """

    folder: Path
    places: list[Place] = field(default_factory=list)
    models: list[PackagedHere] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def inspect_app(folder: Path, system: Path | None = None) -> AppReport:
    """Report which ONNX Runtime and DirectML an app's folder loads on Windows, and whether they fit its packages.

    Args:
        folder: the folder of the app as it is installed.
        system: Windows' own folder of libraries (System32); ``None`` if this machine has none.

    Raises:
        InputError: the folder cannot be read, is too large for an app, or has no program, ONNX Runtime or package.
    """
    if not folder.is_dir():
        raise InputError("not a folder", where=str(folder), fix="pass the folder of the app's program")
    return _Inspection(folder, system).report()


class _Inspection:
    def __init__(self, folder: Path, system: Path | None) -> None:
        self.folder, self.system = folder, system
        self._report = AppReport(folder)
        self._images: dict[Path, Image | None] = {}
        self._targets: list[tuple[str, TargetVersions]] = []

    def report(self) -> AppReport:
        folders = dict(self._folders())
        for here, names in folders.items():
            if CONTRACT in names:
                self._package(here, DIGEST in names)
        for here, names in self._places(folders):
            self._look(here, names)
        report = self._report
        if not report.places and not report.models and not report.findings:
            what = "it has no program, no ONNX Runtime and no package of dmlprep"
            raise InputError(what, where=str(self.folder), fix="pass the folder of the app's program")
        return report

    def _folders(self) -> Iterator[tuple[Path, dict[str, str]]]:
        """Yield every folder with its files: their names, by the names in lower case.

        Raises:
            InputError: a folder cannot be read, or there are too many files.
        """
        count = 0

        def stop(error: OSError) -> None:
            raise unreadable(error, Path(error.filename or self.folder)) from error

        for here, _, names in os.walk(self.folder, onerror=stop):
            count += len(names) + 1
            if count > _FILES:
                what = f"it has more than {_FILES:,} files"
                raise InputError(what, where=str(self.folder), fix="pass only the folder of the app's program")
            yield Path(here), {name.lower(): name for name in sorted(names)}

    def _package(self, here: Path, surely: bool) -> None:
        """Add the package in a folder to the report, with a finding if its model does not fit its contract.

        A ``model.json`` that is not a contract is ignored, unless ``surely``: its digest is next to it.
        """
        try:
            contract, _ = read_contract(here)
        except InputError as error:
            if surely:
                self._damaged(error)
            return
        target = contract.target
        self._targets.append((self._name(here / CONTRACT), target))
        self._report.models.append(PackagedHere(self._name(here), target.lowest_onnxruntime, target.lowest_directml))
        try:
            verify(here, whole=False)
        except InputError as error:
            self._damaged(error)

    def _damaged(self, error: InputError) -> None:
        name = self._name(Path(error.where)) if error.where else ""
        self._tell("DP822", f"{name}: {error.what}")

    def _places(self, folders: dict[Path, dict[str, str]]) -> Iterator[tuple[Path, dict[str, str]]]:
        """Yield the folders with ONNX Runtime, and those with a program where a file imports it; each with its files.

        If no folder contains ONNX Runtime, yield every folder with programs.
        """
        runtimes = [here for here, names in folders.items() if _RUNTIME in names or _PYTHON in names]
        for here, names in folders.items():
            programs = [name for name in names if name.endswith(".exe")]
            if here in runtimes or (programs and (not runtimes or self._asks(here, names))):
                yield here, names

    def _asks(self, here: Path, names: dict[str, str]) -> bool:
        """Return True if a program or library in a folder imports onnxruntime.dll."""
        images = (self._image(here / names[name]) for name in names if name.endswith((".exe", ".dll")))
        return any(image is not None and _RUNTIME in (*image.imports, *image.delayed) for image in images)

    def _look(self, here: Path, names: dict[str, str]) -> None:
        programs = {names[name]: self._image(here / names[name]) for name in names if name.endswith(".exe")}
        if _PYTHON in names or _RUNTIME in names:
            path = here / names[_PYTHON if _PYTHON in names else _RUNTIME]
            image, runtime = self._library(path, self._name(path))
            # Python's library has no version, and is of the same build
            if runtime.version == "?" and _RUNTIME in names:
                beside = self._library(here / names[_RUNTIME], "")[1]
                runtime = replace(runtime, version=beside.version)
            directml = self._runtime(here, names, image)
        else:
            image, runtime = self._library(self.system and self.system / _RUNTIME, "")
            known = f", version {runtime.version}" if runtime.version != "?" else ""
            asking = ", ".join(programs)
            what = f"{self._name(here)} has no onnxruntime.dll, so {asking} loads the one of Windows{known}"
            self._tell("DP830", what)
            directml = Library("")
        self._old("ONNX Runtime", runtime, 2, lambda model: model.lowest_onnxruntime)
        if directml is not None:
            self._old("DirectML", directml, 3, lambda model: model.lowest_directml)
        for name, program in programs.items():
            if program is not None and image is not None and runtime.path and program.machine != image.machine:
                self._tell("DP833", f"{name} is {program.machine}, but {runtime.path} is {image.machine}")
        self._report.places.append(Place(self._name(here), list(programs), runtime, directml))

    def _runtime(self, here: Path, names: dict[str, str], image: Image | None) -> Library | None:
        """Return the DirectML.dll that the ONNX Runtime in a folder loads.

        ``None`` if it loads none, or ``image``, the headers of the ONNX Runtime, is ``None`` because they cannot be
        read. Findings on missing libraries or DirectML provider, and on another architecture, are added to the report.
        """
        others = [name for name in names if name.startswith("onnxruntime_providers_") and name.endswith(".dll")]
        if others and _SHARED not in names:
            what = f"{self._name(here)} has {names[others[0]]} without {_SHARED}, so the provider is never loaded"
            self._tell("DP834", what, "warning")
        if image is None:
            return None
        needs = [name for name in image.imports if name.startswith(_REDISTRIBUTABLE) and name not in names]
        if needs:
            what = f"ONNX Runtime in {self._name(here)} needs {', '.join(needs)}, which are not part of Windows"
            self._tell("DP835", what)
        if _DIRECTML not in (*image.imports, *image.delayed):
            self._tell("DP834", f"ONNX Runtime in {self._name(here)} has no DirectML provider: it runs only on the CPU")
            return None
        if _DIRECTML not in names:
            _, library = self._library(self.system and self.system / "DirectML.dll", "")
            known = f"version {library.version}" if library.version != "?" else "its version depends on the machine"
            self._tell("DP831", f"{self._name(here)} has no DirectML.dll, so the one of Windows is loaded: {known}")
            return library
        path = here / names[_DIRECTML]
        own, library = self._library(path, self._name(path))
        if own is not None and own.machine != image.machine:
            self._tell("DP833", f"{library.path} is {own.machine}, but the ONNX Runtime next to it is {image.machine}")
        return library

    def _old(self, what: str, library: Library, digits: int, lowest: Callable[[TargetVersions], str]) -> None:
        """Add a finding for each package that needs a newer version of a library than the one that is loaded.

        A library of unknown version gets no finding.

        Args:
            what: name of the library, for messages.
            digits: how many numbers of the version are compared.
            lowest: returns the oldest version that a package needs.
        """
        if library.version == "?":
            return
        where = library.path or f"the {what} of Windows"
        for name, target in self._targets:
            least = lowest(target)
            if _numbers(library.version, digits) < _numbers(least, digits):
                self._tell("DP832", f"{where} is {what} {library.version}, but {name} needs {least}")

    def _library(self, path: Path | None, name: str) -> tuple[Image | None, Library]:
        if path is None or (not name and not path.is_file()):
            return None, Library(name)
        image = self._image(path)
        if image is None:
            return None, Library(name)
        version = ".".join(map(str, image.version)) if image.version is not None else "?"
        return image, Library(name, version, image.machine)

    def _image(self, path: Path) -> Image | None:
        """Return the headers of a program or library; if it is damaged, add a finding and return ``None``.

        Raises:
            InputError: the app has too many programs and libraries.
        """
        if path not in self._images:
            if len(self._images) >= _IMAGES:
                what = f"it has more than {_IMAGES:,} programs and libraries"
                raise InputError(what, where=str(self.folder), fix="pass only the folder of the app's program")
            self._images[path] = None
            try:
                self._images[path] = read_image(path)
            except (NotAnImage, Unfit) as error:
                self._tell("DP834", f"{self._name(path)}: {error}")
            except OSError as error:
                self._tell("DP834", f"{self._name(path)}: {unreadable(error, path).what}")
        return self._images[path]

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else str(path)

    def _tell(self, code: str, message: str, severity: Severity | None = None) -> None:
        self._report.findings.append(finding(code, message, severity=severity))


def _numbers(version: str, count: int) -> tuple[int, ...]:
    parts = [int(part) if part.isdecimal() else 0 for part in version.split(".")[:count]]
    return tuple(parts + [0] * (count - len(parts)))
