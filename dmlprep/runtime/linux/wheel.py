"""Download the Windows libraries of one ONNX Runtime release with DirectML, from the user's own package index."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.process.tools import run_tool
from dmlprep.runtime.linux.pins import ANOTHER_FILE, package_release, pin, pinned_files

FIRST_WHEEL = (1, 19)
"""The first release whose wheel has ONNX Runtime as a separate library. Older wheels contain it inside Python's module,
without its C interface; npm's package has the library."""

_FIRST_OF_PYTHON_3_13 = (1, 20)
"""The first release with wheels for Python 3.13."""

_FIRST_NPM = (1, 17)
"""The first release of npm's onnxruntime-node with DirectML."""

_LAST_DIRECTML = (1, 24, 4)
"""The last release of onnxruntime-directml."""

_FIRST_WINDOWSML = (1, 23)
"""The first release of onnxruntime-windowsml."""

_LIMIT = 1 << 30
"""Limit for the size of a file that pip or npm may write, in bytes; npm's package of 1.30.0 has 114 MB."""

_PATIENCE = 3600.0
"""Time limit of pip or npm in seconds."""


class Offer(NamedTuple):
    """A package that may contain a release (``onnxruntime-windowsml 1.30.0``).

    Attributes:
        command: downloads the package.
        pattern: matches the name of the downloaded file.
    """

    name: str
    command: tuple[str, ...]
    pattern: str


def fetch_release(version: str, folder: Path, say: Callable[[str, int, int], None], python: str = "") -> Path:
    """Download the Windows package of a release into ``folder``; return the path of the file.

    For a pinned release (``pins``), exactly the pinned files are requested and their digests checked. Other releases
    are tried in order: onnxruntime-directml (pip, 1.19 to 1.24.4), onnxruntime-windowsml (pip, 1.23.2 and newer),
    onnxruntime-node (npm, 1.17 and newer).

    Args:
        python: the Python version of the wheel for a release without pins; by default ``python_for``.

    Raises:
        UsageError: ``version`` is not a version, or is older than 1.17.
        CheckNotRun: pip and npm are missing or cannot fetch it, or the file has another digest.
    """
    if not re.fullmatch(r"\d{1,18}(\.\d{1,18}){1,3}", version):
        raise UsageError("not a version", where=version, fix="pass a release such as 1.24.4 or 1.30.0")
    if numbers(version) < _FIRST_NPM:
        fix = "pass release 1.17 or newer"
        raise UsageError("pip and npm do not have this release with a C interface", where=version, fix=fix)
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    known = [_pinned(name, folder) for name in pinned_files(version)]
    for offer in known or offers(version, folder, python or python_for(version)):
        say(offer.name, 0, 0)
        answer = _fetch(offer, folder)
        if isinstance(answer, Path):
            _check_digest(answer)
            return answer
        reasons.append(answer)
    fix = "check that pip and npm reach your package index, or download the file for win_amd64 and pass"
    raise CheckNotRun("; ".join(reasons), fix=f"{fix} --wheel FILE")


def python_for(version: str) -> str:
    """Return the Python version of the wheel to use for a release; the libraries are the same in all wheels."""
    return "3.13" if numbers(version) >= _FIRST_OF_PYTHON_3_13 else "3.11"


def _check_digest(path: Path) -> None:
    with path.open("rb") as file:
        verdict, digest = pin(file, path.name)
    if verdict == "another":
        path.unlink()
        what = f"the package index returned a file with other content: SHA-256 {digest}"
        raise CheckNotRun(what, where=path.name, fix=ANOTHER_FILE)


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``1.30.0.*`` becomes (1, 30, 0)."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _pip(requirement: str, python: str, folder: Path) -> tuple[str, ...]:
    return (
        # -P: do not import a pip from the current directory.
        sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--platform", "win_amd64", "--python-version", python, "--dest", str(folder),
        requirement,
    )  # fmt: skip


def _npm(version: str, folder: Path) -> tuple[str, ...]:
    folder_option = ("--pack-destination", str(folder))
    return ("npm", "pack", "--silent", "--ignore-scripts", *folder_option, f"onnxruntime-node@{version}")


def _pinned(file: str, folder: Path) -> Offer:
    """Return the offer of the package that contains exactly this file."""
    what = package_release(file)
    assert what is not None
    package, version = what
    name = f"{package} {version}"
    if package == "onnxruntime-node":
        return Offer(name, _npm(version, folder), file)
    python = re.search(r"-cp(\d)(\d+)-", file)
    tag = f"{python[1]}.{python[2]}" if python else python_for(version)
    return Offer(name, _pip(f"{package}=={version}", tag, folder), file)


def offers(version: str, folder: Path, python: str) -> list[Offer]:
    """Return the offers that may contain a release without pins, the most likely first."""

    def wheel(kind: str, files: str) -> Offer:
        command = _pip(f"onnxruntime-{kind}=={files}", python, folder)
        return Offer(f"onnxruntime-{kind} {version}", command, f"onnxruntime_{kind}-{files}-*win_amd64.whl")

    parts = numbers(version)
    # Versions of onnxruntime-windowsml end with the build time: 1.30.0.202609102321.
    directml, windowsml = wheel("directml", version), wheel("windowsml", version if len(parts) > 3 else f"{version}.*")
    npm = Offer(f"onnxruntime-node {version}", _npm(version, folder), f"onnxruntime-node-{version}.tgz")
    if parts < FIRST_WHEEL:
        return [npm]
    if parts > _LAST_DIRECTML:
        return [windowsml, npm]
    return [directml, *([windowsml] if parts >= _FIRST_WINDOWSML else []), npm]


def _fetch(offer: Offer, folder: Path) -> Path | str:
    """Run the command of an offer; return the path of the downloaded file, or the reason why there is none."""
    what = f"{'npm' if offer.command[0] == 'npm' else 'pip'} cannot fetch {offer.name}"
    for old in folder.glob(offer.pattern):
        old.unlink()  # from an earlier download
    # ulimit counts blocks of 512 bytes (POSIX). A lower limit that is already set remains.
    limited = f'(ulimit -f {_LIMIT // 512}) 2>&- && ulimit -f {_LIMIT // 512}; exec "$@"'
    line = ["sh", "-c", limited, "sh", *offer.command]
    try:
        result = run_tool(line, limit=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{what}: {error}"
    files = sorted(path for path in folder.iterdir() if fnmatch.fnmatchcase(path.name, offer.pattern))
    if result.returncode == 0 and files:
        return files[-1]
    lines = reversed((result.stderr + result.stdout).splitlines())
    errors = (line.strip() for line in lines if re.search(r"ERR|No module|No matching|too large|not found", line))
    return f"{what}: {next(errors, 'no reason given')}"
