"""A digest of dmlprep's own code: kept results are valid for the code that made them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_CODE = (".py", ".json", ".c", ".h", ".spec", ".sh")
"""Suffixes of what is hashed of this package: its code, the tables of releases, the native host."""


@cache
def code_digest() -> str:
    """Return the SHA-256 over this package's files; ``OSError`` if one cannot be read."""
    folder = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _CODE and path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
