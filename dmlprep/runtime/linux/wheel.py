"""The Windows libraries of one onnxruntime-directml release, from the user's own package index."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from dmlprep.errors import CheckNotRun, InputError, UsageError

__all__ = ["DEFAULT_RELEASE", "fetch_release", "unpack_wheel"]

DEFAULT_RELEASE = "1.24.4"
"""The last release of onnxruntime-directml, with DirectML 1.15.4."""

_NEEDED = ("onnxruntime.dll", "DirectML.dll")


def fetch_release(version: str, folder: Path, say: Callable[[str, int, int], None]) -> Path:
    """Let pip fetch the wheel for Windows into ``folder``.

    Raises:
        UsageError: ``version`` is no version.
        CheckNotRun: pip is missing or cannot fetch it.
    """
    if not re.fullmatch(r"\d+(\.\d+){1,3}", version):
        raise UsageError("not a version", where=version, fix="name a release of onnxruntime-directml such as 1.24.4")
    folder.mkdir(parents=True, exist_ok=True)
    say(f"onnxruntime-directml {version}", 0, 0)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--platform", "win_amd64", "--python-version", "3.11", "--dest", str(folder)]
    result = subprocess.run(
        [*command, f"onnxruntime-directml=={version}"], capture_output=True, text=True, errors="replace", check=False
    )
    found = sorted(folder.glob(f"onnxruntime_directml-{version}-*win_amd64.whl"))
    if result.returncode or not found:
        said = [line for line in result.stderr.splitlines() if "ERROR" in line or "No module" in line][-1:]
        raise CheckNotRun(
            f"pip cannot fetch onnxruntime-directml {version}: {said[0] if said else 'no reason given'}",
            fix="see that pip reaches your package index, or fetch the win_amd64 wheel yourself and pass --wheel FILE",
        )
    return found[-1]


def unpack_wheel(wheel: Path, releases: Path) -> str:
    """Put the libraries of a wheel into ``releases/VERSION``; the version.

    Raises:
        InputError: not a Windows wheel of onnxruntime-directml.
    """
    match = re.match(r"onnxruntime_directml-([0-9.]+)-", wheel.name)
    if not match or not wheel.is_file():
        fix = "pass the file onnxruntime_directml-VERSION-...-win_amd64.whl"
        raise InputError("not a wheel of onnxruntime-directml", where=str(wheel), fix=fix)
    version = match.group(1)
    part = releases / f".{version}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    digests: dict[str, str] = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                base = name.rpartition("/")[2]
                library = name.startswith("onnxruntime/capi/") and base.lower().endswith(".dll")
                terms = (
                    name.startswith("onnxruntime/")
                    and name.count("/") == 1
                    and base in ("LICENSE", "ThirdPartyNotices.txt")
                )
                if library or terms:
                    data = archive.read(name)
                    (part / base).write_bytes(data)
                    if library:
                        digests[base] = hashlib.sha256(data).hexdigest()
    except (zipfile.BadZipFile, OSError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise InputError(f"the wheel cannot be read: {error}", where=str(wheel)) from error
    missing = [name for name in _NEEDED if name not in digests]
    if missing:
        shutil.rmtree(part, ignore_errors=True)
        raise InputError(f"the wheel holds no {missing[0]}", where=str(wheel), fix="pass the wheel for win_amd64")
    piece = {"release": version, "wheel": hashlib.sha256(wheel.read_bytes()).hexdigest(), "libraries": digests}
    (part / "piece.json").write_text(json.dumps(piece, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(releases / version, ignore_errors=True)
    part.replace(releases / version)
    return version
