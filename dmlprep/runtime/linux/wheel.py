"""The Windows libraries of one ONNX Runtime release with DirectML, from the user's own package index."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from dmlprep.errors import CheckNotRun, InputError, UsageError

__all__ = ["DEFAULT_RELEASE", "fetch_release", "unpack_libraries"]

DEFAULT_RELEASE = "1.24.4"
"""The last release of onnxruntime-directml, with DirectML 1.15.4."""

_FIRST_WHEEL = (1, 19)
"""Wheels before 1.19 hold ONNX Runtime inside Python's module, without its C interface; npm's package has the
library."""

_FIRST_NPM = (1, 17)
"""npm's onnxruntime-node has DirectML since 1.17."""

_NEEDED = ("onnxruntime.dll", "DirectML.dll")


def fetch_release(version: str, folder: Path, say: Callable[[str, int, int], None]) -> Path:
    """Let pip fetch the wheel for Windows into ``folder``; for releases before 1.19 npm the package onnxruntime-node.

    Raises:
        UsageError: ``version`` is no version, or one that cannot be had.
        CheckNotRun: pip or npm is missing or cannot fetch it.
    """
    if not re.fullmatch(r"\d+(\.\d+){1,3}", version):
        raise UsageError("not a version", where=version, fix="name a release of onnxruntime-directml such as 1.24.4")
    numbers = tuple(int(part) for part in version.split("."))
    if numbers < _FIRST_NPM:
        fix = "name a release from 1.17 on"
        raise UsageError("neither pip nor npm has this release with a C interface", where=version, fix=fix)
    folder.mkdir(parents=True, exist_ok=True)
    if numbers < _FIRST_WHEEL:
        say(f"onnxruntime-node {version}", 0, 0)
        command = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"onnxruntime-node@{version}"]
        return _fetch(
            command, folder, f"onnxruntime-node-{version}.tgz", f"npm cannot fetch onnxruntime-node {version}"
        )
    say(f"onnxruntime-directml {version}", 0, 0)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--platform", "win_amd64", "--python-version", "3.11", "--dest", str(folder)]
    command.append(f"onnxruntime-directml=={version}")
    pattern = f"onnxruntime_directml-{version}-*win_amd64.whl"
    return _fetch(command, folder, pattern, f"pip cannot fetch onnxruntime-directml {version}")


def _fetch(command: list[str], folder: Path, pattern: str, what: str) -> Path:
    fix = "see that it reaches your package index, or fetch the file for win_amd64 yourself and pass --wheel FILE"
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CheckNotRun(f"{what}: {error}", fix=fix) from error
    found = sorted(folder.glob(pattern))
    if result.returncode or not found:
        lines = (result.stderr + result.stdout).splitlines()
        said = [line for line in lines if re.search(r"ERR|No module|No matching", line)][-1:]
        raise CheckNotRun(f"{what}: {said[0].strip() if said else 'no reason given'}", fix=fix)
    return found[-1]


def _files(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Libraries and licence texts of a wheel or of npm's package: (file name, content)."""
    wanted = re.compile(r"onnxruntime/capi/[^/]+\.dll|package/bin/napi-v\d/win32/x64/[^/]+\.dll")
    terms = re.compile(r"onnxruntime/(LICENSE|ThirdPartyNotices\.txt)|package/(LICENSE|README\.md)")
    if archive.suffix == ".tgz":
        with tarfile.open(archive) as tar:
            for member in tar:
                source = tar.extractfile(member) if member.isreg() else None
                if source is not None and (wanted.fullmatch(member.name) or terms.fullmatch(member.name)):
                    yield member.name.rpartition("/")[2], source.read()
        return
    with zipfile.ZipFile(archive) as wheel:
        for name in wheel.namelist():
            if wanted.fullmatch(name) or terms.fullmatch(name):
                yield name.rpartition("/")[2], wheel.read(name)


def unpack_libraries(archive: Path, releases: Path) -> str:
    """Put the libraries of a wheel, or of npm's package, into ``releases/VERSION``; the version.

    Raises:
        InputError: not such an archive.
    """
    match = re.match(r"onnxruntime(?:_directml|-node)-(\d[0-9.]*\d)[-.]", archive.name)
    if not match or not archive.is_file():
        fix = "pass onnxruntime_directml-VERSION-...-win_amd64.whl or onnxruntime-node-VERSION.tgz"
        raise InputError("not a package of ONNX Runtime with DirectML", where=str(archive), fix=fix)
    version = match.group(1)
    part = releases / f".{version}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    digests: dict[str, str] = {}
    try:
        for name, data in _files(archive):
            (part / name).write_bytes(data)
            if name.lower().endswith(".dll"):
                digests[name] = hashlib.sha256(data).hexdigest()
        missing = [name for name in _NEEDED if name not in digests]
        if missing:
            raise InputError(f"the package holds no {missing[0]}", where=str(archive), fix="pass the one for win_amd64")
    except (zipfile.BadZipFile, tarfile.TarError, OSError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise InputError(f"the package cannot be read: {error}", where=str(archive)) from error
    except InputError:
        shutil.rmtree(part, ignore_errors=True)
        raise
    package = {"file": archive.name, "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}
    piece = {"release": version, "package": package, "libraries": digests}
    (part / "piece.json").write_text(json.dumps(piece, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(releases / version, ignore_errors=True)
    part.replace(releases / version)
    return version
