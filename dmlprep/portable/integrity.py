"""Check that a kit is unchanged: the size and SHA-256 of each file in ``kit.json``, and no additional code.

The check finds files that were mixed up, truncated or edited. It does not stop an attacker, who can also rewrite
``kit.json``. A key does (``keys``).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

MANIFEST = "kit.json"
_FOLDERS = ("model", "candidates", "feeds", "expected", "dmlprep_kit")


def file_digest(path: Path) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 of a file, which is read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


def read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the content of ``kit.json``, and its SHA-256, which identifies the kit.

    Raises:
        ValueError: ``kit.json`` is missing, damaged, or in an unknown format.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError("kit.json is not next to run.py: extract the whole zip, then run it from there")
    raw = path.read_bytes()
    try:
        manifest = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        raise ValueError("kit.json is damaged: extract the zip again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != 1 or not isinstance(manifest.get("files"), dict):
        raise ValueError("kit.json has a format unknown to this run.py: use the run.py from the same zip")
    return manifest, hashlib.sha256(raw).hexdigest()


def problems(folder: Path, manifest: dict[str, Any]) -> list[str]:
    """Return one sentence for each file that is missing, changed or not part of the kit; empty for an intact kit.

    Additional files count in the kit's own folders, and as Python files next to ``kit.json``. Python's caches do not
    count.
    """
    messages = []
    for name, entry in sorted(manifest["files"].items()):
        path = folder / name
        if not path.is_file():
            messages.append(f"{name} is missing")
        elif path.stat().st_size != entry["bytes"]:
            messages.append(f"{name} has {path.stat().st_size} bytes, expected {entry['bytes']}")
        elif file_digest(path)[1] != entry["sha256"]:
            messages.append(f"{name} is not the file that was packed: its SHA-256 differs")
    there = [p for top in _FOLDERS for p in (folder / top).rglob("*") if p.is_file()]
    names = [path.relative_to(folder).as_posix() for path in sorted([*there, *folder.glob("*.py")])]
    strange = [name for name in names if name not in manifest["files"] and "__pycache__" not in name]
    return [*messages, *(f"{name} does not belong to the kit" for name in strange)]


def seal(result: dict[str, Any]) -> str:
    """Return the SHA-256 of a result, without its entry ``seal``, in which it is stored.

    It detects edits, but does not prove the origin.
    """
    rest = {key: value for key, value in result.items() if key != "seal"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
