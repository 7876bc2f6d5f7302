"""Sign packages and check signatures: Ed25519 (RFC 8032) over the contract. Only here ``cryptography`` is imported."""

from __future__ import annotations

import base64
import binascii
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from dmlprep.core.errors import InputError, OutputError, UsageError
from dmlprep.core.files import Unfit, check_output, read_given
from dmlprep.core.files.links import is_plain_file
from dmlprep.core.files.writing import write_file, write_private
from dmlprep.package.reading import read_small

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_LONGEST = 4096
"""Largest size in bytes of the file of a key or a signature; these have some hundred."""

_OWN_KEY = "pass the file that dmlprep package --sign created, or an unencrypted openssl ed25519 key"
_AUTHORS = "get the package and the key from the author; dmlprep package --sign KEY signs"

_FORM = re.compile(rb"[A-Za-z0-9+/]{86}==\n")
"""Pattern of the file of a signature: base64 of 64 bytes, and a line end."""


class SigningKey:
    """A private key that signs packages. A new key is written to its file only by ``keep``, when a package is done.

    Attributes:
        public: path of the file of the public key.
    """

    def __init__(self, private: Ed25519PrivateKey, path: Path, *, is_new: bool) -> None:
        self._private = private
        self._path = path
        self._is_new = is_new
        self.public = public_file(path)

    def keep(self) -> None:
        """If the key is new, write the files of the private key, which only its owner can read, and of the public key.

        Raises:
            OutputError: a file exists or cannot be written.
        """
        if not self._is_new:
            return
        forms = _library().serialization
        pem, private, public = forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.PublicFormat.SubjectPublicKeyInfo
        try:
            write_private(self._path, self._private.private_bytes(pem, private, forms.NoEncryption()))
        except FileExistsError as error:
            what = "another run created this key at the same time"
            raise OutputError(what, where=str(self._path), fix="run again: it uses that key") from error
        write_file(self.public, self._private.public_key().public_bytes(pem, public), force=False)
        self._is_new = False

    def sign(self, document: bytes) -> bytes:
        """Return the content of a signature file for a document: base64 (RFC 4648) of 64 bytes, and a line end."""
        return base64.b64encode(self._private.sign(document)) + b"\n"


def public_file(key: Path) -> Path:
    """Return the path of the public key that belongs to the file of a private key: with the suffix ``.pub``."""
    return key.with_name(f"{key.name}.pub")


def signing_key(path: Path) -> SigningKey:
    """Read a private key from a PEM file (PKCS 8); if there is no file, return a new key, which ``keep`` writes.

    Raises:
        InputError: the file is not a private Ed25519 key, or is encrypted.
        OutputError: there is no file, and the files of a new key cannot be written, or the public one exists.
        UsageError: the package ``cryptography`` is not installed.
    """
    crypto = _library()
    if not os.path.lexists(path):
        check_output(path)
        check_output(public_file(path))
        return SigningKey(crypto.ed25519.Ed25519PrivateKey.generate(), path, is_new=True)
    raw = _read(path, _OWN_KEY)
    try:
        private = crypto.serialization.load_pem_private_key(raw, None)
    except (ValueError, TypeError, crypto.unsupported) as error:
        what = "it is encrypted" if b"ENCRYPTED" in raw else "it contains no private key in PEM"
        raise _unfit(path, what, _OWN_KEY) from error
    if not isinstance(private, crypto.ed25519.Ed25519PrivateKey):
        raise _unfit(path, "its key is not an Ed25519 key", _OWN_KEY)
    return SigningKey(private, path, is_new=False)


def is_signature(path: Path) -> bool:
    """Return True if a plain file has the form of a signature file; the signature itself is not checked."""
    try:
        return is_plain_file(path) and _FORM.fullmatch(read_given(path, _LONGEST)) is not None
    except (OSError, Unfit):
        return False


def check_signature(document: bytes, signature: Path, key: Path) -> None:
    """Check that the file ``signature`` is a valid signature of a document.

    Args:
        document: the content that was signed.
        key: file of the public key (PEM).

    Raises:
        InputError: ``signature`` is missing, ``key`` is not a public Ed25519 key, or the private key that belongs to it
            did not sign the document.
        UsageError: the package ``cryptography`` is not installed.
    """
    crypto = _library()
    raw = _read(key, "pass the .pub file next to the private key")
    try:
        public: Ed25519PublicKey = crypto.serialization.load_pem_public_key(raw)
    except (ValueError, TypeError, crypto.unsupported) as error:
        raise _unfit(key, "it contains no public key in PEM") from error
    if not isinstance(public, crypto.ed25519.Ed25519PublicKey):
        raise _unfit(key, "its key is not an Ed25519 key")
    if not signature.exists():
        raise _unfit(signature, "the package is not signed: this file is missing")
    try:
        public.verify(base64.b64decode(_read(signature, _AUTHORS), validate=False), document)
    except (crypto.invalid, binascii.Error) as error:
        what = "wrong signature: the contract was changed, or another key signed it"
        raise _unfit(signature, what) from error


def _library() -> SimpleNamespace:
    """Import the package ``cryptography``, and return the parts that are used.

    Raises:
        UsageError: DP823, it is not installed.
    """
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        what = f"signatures need the package cryptography: {error}"
        raise UsageError(what, code="DP823", fix='pip install "dmlprep[sign]"') from error
    return SimpleNamespace(
        invalid=InvalidSignature, unsupported=UnsupportedAlgorithm, serialization=serialization, ed25519=ed25519
    )


def _read(path: Path, fix: str) -> bytes:
    return read_small(path, code="DP823", fix=fix, limit=_LONGEST)


def _unfit(path: Path, what: str, fix: str = _AUTHORS) -> InputError:
    return InputError(what, where=str(path), code="DP823", fix=fix)
