"""Keys of kits: the packer's own, and the one of a single kit for whoever runs it.

The packer's key seals ``kit.json`` and never leaves the packer. The run key follows from it and from the kit's name
(HMAC-SHA256, RFC 2104): it signs ``result.json`` of that kit, and can neither seal a kit nor sign another kit's result.
No text here holds a key.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

KIT_SEAL, RESULT_SEAL = "kit.hmac", "result.hmac"
"""Members of the two zips: 64 hexadecimal digits, over the bytes of ``kit.json`` or ``result.json``."""

LONGEST = 1024
"""Bytes of a key's file or a seal at most."""

_PACKER, _RUN = "dmlprep-packer-key-1", "dmlprep-run-key-1"
_LINE = re.compile(rf"({_PACKER}|{_RUN} [0-9a-f]{{64}}) ([0-9a-f]{{64}})\s*")


def _hmac(key: bytes, purpose: str, content: bytes) -> bytes:
    """HMAC-SHA256 of content for one purpose, so that a seal for one is none for another."""
    return hmac.digest(key, purpose.encode("ascii") + b"\n" + content, "sha256")


@dataclass(frozen=True)
class RunKey:
    """Signs the results of the kit of a name, with 32 bytes."""

    kit: str
    secret: bytes = field(repr=False)

    def line(self) -> str:
        """What its file holds."""
        return f"{_RUN} {self.kit} {self.secret.hex()}\n"

    def seal(self, document: bytes) -> bytes:
        """The seal of a ``result.json``."""
        return _hmac(self.secret, "dmlprep result", document).hex().encode("ascii")


@dataclass(frozen=True)
class PackerKey:
    """Seals kits; 32 random bytes."""

    secret: bytes = field(repr=False)

    def line(self) -> str:
        """What its file holds."""
        return f"{_PACKER} {self.secret.hex()}\n"

    def seal(self, document: bytes) -> bytes:
        """The seal of a ``kit.json``."""
        return _hmac(self.secret, "dmlprep kit", document).hex().encode("ascii")

    def run_key(self, kit: str) -> RunKey:
        """The key for whoever runs the kit of this name."""
        return RunKey(kit, _hmac(self.secret, "dmlprep run key", kit.encode("ascii")))


def new_packer_key() -> PackerKey:
    """A key that nobody has."""
    return PackerKey(secrets.token_bytes(32))


def _parts(raw: bytes) -> tuple[str, bytes]:
    match = _LINE.fullmatch(raw.decode("ascii", "replace"))
    if match is None:
        raise ValueError("not a key of dmlprep kit")
    return match[1], bytes.fromhex(match[2])


def parse_packer_key(raw: bytes) -> PackerKey:
    """The packer's key, of what its file holds.

    Raises:
        ValueError: it is no such key.
    """
    kind, secret = _parts(raw)
    if kind != _PACKER:
        raise ValueError("this is a run key, not the packer's key")
    return PackerKey(secret)


def parse_run_key(raw: bytes) -> RunKey:
    """The key of one kit, of what its file holds.

    Raises:
        ValueError: it is no such key.
    """
    kind, secret = _parts(raw)
    if kind == _PACKER:
        raise ValueError("this is the packer's private key, which should not be here: use the .run-key file")
    return RunKey(kind.rpartition(" ")[2], secret)


def read_run_key(path: Path, kit: str) -> RunKey:
    """The key that signs the results of this kit.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no such key, or that of another kit.
    """
    with path.open("rb") as file:
        key = parse_run_key(file.read(LONGEST))
    if key.kit != kit:
        raise ValueError(f"this key belongs to kit {key.kit[:12]}, but this is kit {kit[:12]}")
    return key


def fits(seal: bytes, expected: bytes) -> bool:
    """Whether a seal that was found is the one expected; takes the same time wherever they differ."""
    return hmac.compare_digest(seal.strip(), expected)
