"""The keys of kits: one for the packer of all kits, and a run key for each single kit.

The packer's key seals ``kit.json`` and never leaves the packer. The run key is derived from it and from the kit's id
(HMAC-SHA256, RFC 2104). It signs ``result.json`` of that kit. It can neither seal a kit nor sign the result of another
kit. No error text of this module contains a key.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

KIT_SEAL, RESULT_SEAL = "kit.hmac", "result.hmac"
"""File names of the seals: of ``kit.json`` in a kit, and of ``result.json`` in a result. Each file has 64
hexadecimal digits."""

LONGEST = 1024
"""Limit for the size of a key file or a seal, in bytes."""

_PACKER, _RUN = "dmlprep-packer-key-1", "dmlprep-run-key-1"
_LINE = re.compile(rf"({_PACKER}|{_RUN} [0-9a-f]{{64}}) ([0-9a-f]{{64}})\s*")


def _hmac(key: bytes, purpose: str, content: bytes) -> bytes:
    """Return the HMAC-SHA256 of content for one purpose, so that its seal is not valid for another purpose."""
    return hmac.digest(key, purpose.encode("ascii") + b"\n" + content, "sha256")


@dataclass(frozen=True)
class RunKey:
    """The key of one kit, which signs its results. ``kit`` is the kit's id; the secret has 32 bytes."""

    kit: str
    secret: bytes = field(repr=False)

    def line(self) -> str:
        """Return the content of this key's file."""
        return f"{_RUN} {self.kit} {self.secret.hex()}\n"

    def seal(self, document: bytes) -> bytes:
        """Return the seal of a ``result.json`` with this content, 64 hexadecimal digits."""
        return _hmac(self.secret, "dmlprep result", document).hex().encode("ascii")


@dataclass(frozen=True)
class PackerKey:
    """The key of the packer, which seals kits. The secret has 32 random bytes."""

    secret: bytes = field(repr=False)

    def line(self) -> str:
        """Return the content of this key's file."""
        return f"{_PACKER} {self.secret.hex()}\n"

    def seal(self, document: bytes) -> bytes:
        """Return the seal of a ``kit.json`` with this content, 64 hexadecimal digits."""
        return _hmac(self.secret, "dmlprep kit", document).hex().encode("ascii")

    def run_key(self, kit: str) -> RunKey:
        """Return the key for the person who runs the kit with this id."""
        return RunKey(kit, _hmac(self.secret, "dmlprep run key", kit.encode("ascii")))


def new_packer_key() -> PackerKey:
    """Return a new random key of a packer."""
    return PackerKey(secrets.token_bytes(32))


def _parts(raw: bytes) -> tuple[str, bytes]:
    match = _LINE.fullmatch(raw.decode("ascii", "replace"))
    if match is None:
        raise ValueError("not a key of dmlprep kit")
    return match[1], bytes.fromhex(match[2])


def parse_packer_key(raw: bytes) -> PackerKey:
    """Return the packer's key from the content of its file.

    Raises:
        ValueError: the file does not contain a packer's key.
    """
    kind, secret = _parts(raw)
    if kind != _PACKER:
        raise ValueError("this is a run key, not the packer's key")
    return PackerKey(secret)


def parse_run_key(raw: bytes) -> RunKey:
    """Return the run key of a kit from the content of its file.

    Raises:
        ValueError: the file does not contain a run key.
    """
    kind, secret = _parts(raw)
    if kind == _PACKER:
        raise ValueError("this is the packer's private key, which should not be here: use the .run-key file")
    return RunKey(kind.rpartition(" ")[2], secret)


def read_run_key(path: Path, kit: str) -> RunKey:
    """Read a key file, and return the key that signs the results of the kit with the id ``kit``.

    Raises:
        OSError: the file cannot be read.
        ValueError: it does not contain a run key, or contains the key of another kit.
    """
    with path.open("rb") as file:
        key = parse_run_key(file.read(LONGEST))
    if key.kit != kit:
        raise ValueError(f"this key belongs to kit {key.kit[:12]}, but this is kit {kit[:12]}")
    return key


def fits(seal: bytes, expected: bytes) -> bool:
    """Return whether a seal is the expected one. The time does not depend on where they differ."""
    return hmac.compare_digest(seal.strip(), expected)
