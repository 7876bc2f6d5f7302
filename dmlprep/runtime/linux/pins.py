"""Digests of the packages of ONNX Runtime that this release of dmlprep knows: what an index gives must be these files.

Two lists: ``packages.toml`` beside this module (``scripts/pin_packages.py`` writes it), and the packages that targets
were read from. A package of neither is unpinned: its digest is written down, and the first one that came is held to.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Literal

from dmlprep.directml.targets import find_target, target_names
from dmlprep.runtime.linux.bounded import CHUNK

PACKAGES = ("onnxruntime-directml", "onnxruntime-windowsml", "onnxruntime-node")
"""Those that hold ONNX Runtime with DirectML, the likeliest first; the last is npm's."""

PINS = Path(__file__).with_name("packages.toml")

ANOTHER_FILE = "find out why your index has another file; pass a file that you trust with --wheel FILE"
"""What to do about a package of another digest."""

Pin = Literal["pinned", "unpinned", "another"]
"""A file is the one that is known by its name, of a name that is not known, or another one of a name that is."""


@cache
def known_digests() -> Mapping[str, str]:
    """Digest by file name: ``sha256-`` and hexadecimal as pip's indexes have it, ``sha512-`` and base64 as npm's."""
    line = re.compile(r"package: (\S+), sha256 ([0-9a-f]{64})")
    sources = [source for name in target_names() for source in find_target(name).sources]
    read = {found[1]: f"sha256-{found[2]}" for source in sources if (found := line.match(source))}
    return {**packages(), **read}


def packages() -> dict[str, str]:
    """The rows of ``packages.toml``."""
    rows: dict[str, str] = tomllib.loads(PINS.read_text(encoding="utf-8"))["packages"]
    return rows


def package_release(name: str) -> tuple[str, str] | None:
    """Package and version that a file is of: ``onnxruntime-windowsml``, ``1.30.0.202609102321``; else ``None``."""
    match = re.match(r"(onnxruntime(?:_directml|_windowsml|-node))-(\d+(?:\.\d+){1,3})(?:-|\.tgz$)", name)
    return (match[1].replace("_", "-"), match[2]) if match else None


def pinned_files(release: str) -> list[str]:
    """The files that are known to hold a release of ONNX Runtime, by name, the likeliest first; of each package one.

    ``release`` has three numbers, or is the whole version of a package.
    """
    latest: dict[str, tuple[list[int], str]] = {}
    for name in known_digests():
        what = package_release(name)
        if what and (what[1] == release or what[1].split(".")[:3] == release.split(".")):
            # Of several builds the last; their versions end with its time.
            row = ([int(part) for part in what[1].split(".")], name)
            latest[what[0]] = max(row, latest.get(what[0], row))
    return [latest[package][1] for package in PACKAGES if package in latest]


def pin(file: IO[bytes], name: str) -> tuple[Pin, str]:
    """How a package file called ``name`` stands to what is known, and its SHA-256. Reads it from its beginning."""
    sha256, sha512 = hashlib.sha256(), hashlib.sha512()
    file.seek(0)
    while data := file.read(CHUNK):
        sha256.update(data)
        sha512.update(data)
    found = (f"sha256-{sha256.hexdigest()}", "sha512-" + base64.b64encode(sha512.digest()).decode())
    wanted = known_digests().get(name)
    verdict: Pin = "unpinned" if wanted is None else "pinned" if wanted in found else "another"
    return verdict, sha256.hexdigest()
