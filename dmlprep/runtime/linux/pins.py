"""Pinned digests of the ONNX Runtime packages that this release of dmlprep knows. Downloads must match them.

They come from two lists: ``packages.toml`` in this folder (written by ``scripts/pin_packages.py``), and the packages
that the placement rules of targets were read from. A package in neither list is unpinned. The digest of its first
download is saved, and later downloads must match it.
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
"""The packages with ONNX Runtime and DirectML, the most likely first; the last one is npm's."""

PINS = Path(__file__).with_name("packages.toml")

ANOTHER_FILE = "find out why your index has another file; pass a file that you trust with --wheel FILE"
"""The fix for a package with another digest."""

Pin = Literal["pinned", "unpinned", "another"]
"""The verdict on a package file. ``pinned``: it has the known digest. ``unpinned``: its name is unknown.
``another``: its name is known, but its digest differs."""


@cache
def known_digests() -> Mapping[str, str]:
    """Return the known digests by file name.

    A digest is ``sha256-`` and hexadecimal digits as in pip's indexes, or ``sha512-`` and base64 as in npm's.
    """
    line = re.compile(r"package: (\S+), sha256 ([0-9a-f]{64})")
    sources = [source for name in target_names() for source in find_target(name).sources]
    read = {match[1]: f"sha256-{match[2]}" for source in sources if (match := line.match(source))}
    return {**packages(), **read}


def packages() -> dict[str, str]:
    """Return the digests in ``packages.toml``, by file name."""
    rows: dict[str, str] = tomllib.loads(PINS.read_text(encoding="utf-8"))["packages"]
    return rows


def package_release(name: str) -> tuple[str, str] | None:
    """Return package and version for a file name: (``onnxruntime-windowsml``, ``1.30.0.202609102321``).

    ``None`` if the file is not such a package.
    """
    match = re.match(r"(onnxruntime(?:_directml|_windowsml|-node))-(\d+(?:\.\d+){1,3})(?:-|\.tgz$)", name)
    return (match[1].replace("_", "-"), match[2]) if match else None


def pinned_files(release: str) -> list[str]:
    """Return the names of the known files that contain a release, one for each package, the most likely first.

    ``release`` has three numbers, or is the whole version of a package. The list is empty for an unknown release.
    """
    latest: dict[str, tuple[list[int], str]] = {}
    for name in known_digests():
        what = package_release(name)
        if what and (what[1] == release or what[1].split(".")[:3] == release.split(".")):
            # Of several builds, the last one: the versions end with the build time.
            row = ([int(part) for part in what[1].split(".")], name)
            latest[what[0]] = max(row, latest.get(what[0], row))
    return [latest[package][1] for package in PACKAGES if package in latest]


def pin(file: IO[bytes], name: str) -> tuple[Pin, str]:
    """Compare the content of a package file called ``name`` with its pin; return the verdict and the SHA-256.

    The file is read from its beginning.
    """
    sha256, sha512 = hashlib.sha256(), hashlib.sha512()
    file.seek(0)
    while data := file.read(CHUNK):
        sha256.update(data)
        sha512.update(data)
    digests = (f"sha256-{sha256.hexdigest()}", "sha512-" + base64.b64encode(sha512.digest()).decode())
    wanted = known_digests().get(name)
    verdict: Pin = "unpinned" if wanted is None else "pinned" if wanted in digests else "another"
    return verdict, sha256.hexdigest()
