"""A Debian archive for tests: packages, indexes, release files signed with keys made here, and a mirror of it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import lzma
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

GPG = pytest.mark.skipif(
    not all(shutil.which(name) for name in ("gpg", "gpgv", "gpgconf")),
    reason="keys are made with gpg, and read with gpgv",
)

NOW = datetime.now(UTC).replace(microsecond=0)
PAST = "20200101T000000"
"""When the keys were made that do not hold any more."""


@dataclass(frozen=True)
class Keys:
    """Keys in a home of their own.

    Attributes:
        keyring: the public keys, but for the stranger's, as they stand today.
    """

    home: Path
    keyring: Path

    def sign(self, text: str, key: str = "good", *more: str) -> bytes:
        """``InRelease`` of a text. The key called expired signed while it held."""
        then = ["--faked-system-time", PAST] if key == "expired" else []
        line = [*then, *more, "--local-user", f"{key}@example.org", "--clearsign"]
        return gpg(self.home, *line, give=text.encode())


def gpg(home: Path, *line: str, give: bytes = b"") -> bytes:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    return subprocess.run([*command, *line], input=give, capture_output=True, check=True).stdout


@contextlib.contextmanager
def made_keys() -> Iterator[Keys]:
    """Keys called good, stranger, expired and revoked."""
    # The agent's socket has a path of 108 bytes at most, so this is no folder of pytest's.
    with tempfile.TemporaryDirectory(prefix="gpg-", ignore_cleanup_errors=True) as folder:
        home, today = Path(folder, "home"), Path(folder, "today")
        for path in (home, today):
            path.mkdir(mode=0o700)
        try:
            for name in ("good", "stranger", "revoked", "expired"):
                ends = "20200201T000000" if name == "expired" else "never"
                then = ("--faked-system-time", PAST)
                gpg(home, *then, "--quick-generate-key", f"{name}@example.org", "ed25519", "sign", ends)
            names = [f"{name}@example.org" for name in ("good", "revoked", "expired")]
            gpg(today, "--import", give=gpg(home, "--export", *names))
            listed = gpg(home, "--with-colons", "--list-keys", "revoked@example.org").decode()
            fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
            revocation = (home / "openpgp-revocs.d" / f"{fingerprint}.rev").read_bytes().replace(b":-----", b"-----")
            gpg(today, "--import", give=revocation)
            keyring = Path(folder, "keys.gpg")
            keyring.write_bytes(gpg(today, "--export"))
            yield Keys(home, keyring)
        finally:
            for path in (home, today):
                subprocess.run(["gpgconf", "--homedir", str(path), "--kill", "all"], check=False, capture_output=True)


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    """A member of a tar archive, by the fields of ``TarInfo``: ``type``, ``linkname``, ``mode``."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def tar_of(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return raw.getvalue()


def deb_of(tar: bytes, name: str = "data.tar.xz") -> bytes:
    """A package that holds a tar archive, which is compressed here where the name says xz."""
    packed = lzma.compress(tar, preset=0) if name.endswith(".xz") else tar
    body = b"!<arch>\n"
    for own, data in (("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), (name, packed)):
        body += f"{own:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return body


def deb(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    return deb_of(tar_of(list(members)))


Answer = Callable[[BaseHTTPRequestHandler], None] | bytes


@dataclass
class FakeMirror:
    """What is served, by path; filled by ``add_suite``.

    Attributes:
        asked: paths that were asked for.
    """

    keys: Keys | None
    files: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def add_suite(self, suite: str, packages: Mapping[str, bytes], **fields: str) -> None:
        """Packages of version 1.0 by name, their index, and a release file; ``fields`` replace those of today."""
        stanzas = []
        for name, content in packages.items():
            path = f"pool/{name}.deb"
            self.files[path] = content
            digest = hashlib.sha256(content).hexdigest()
            stanzas.append(f"Package: {name}\nVersion: 1.0\nFilename: {path}\nSize: {len(content)}\nSHA256: {digest}\n")
        self.add_index(suite, "\n".join(stanzas).encode() + b"\n", **fields)

    def add_index(self, suite: str, text: bytes, **fields: str) -> None:
        index = {"main/binary-amd64/Packages": text, "main/binary-amd64/Packages.xz": lzma.compress(text, preset=0)}
        for path, data in index.items():
            self.files[f"dists/{suite}/{path}"] = data
        rows = {path: (hashlib.sha256(data).hexdigest(), len(data)) for path, data in index.items()}
        self.add_release(suite, release_text(suite, rows, **fields))

    def add_release(self, suite: str, text: str, key: str = "good", *more: str) -> None:
        signed = self.keys.sign(text, key, *more) if self.keys else armored(text)
        self.files[f"dists/{suite}/InRelease"] = signed

    def release(self, suite: str) -> str:
        """The text that was signed."""
        raw = self.files[f"dists/{suite}/InRelease"]
        assert isinstance(raw, bytes)
        return raw.decode().partition("\n\n")[2].partition("-----BEGIN PGP SIGNATURE")[0]


def release_text(suite: str, files: Mapping[str, tuple[str, int]], **fields: str) -> str:
    """A release file. Fields are those of the format, with ``_`` for ``-``; an empty one is left out."""
    given = {"Origin": "Test", "Codename": suite, "Date": date(), "Valid_Until": date(days=7), **fields}
    head = [f"{key.replace('_', '-')}: {value}" for key, value in given.items() if value]
    rows = [f" {digest} {size} {path}" for path, (digest, size) in files.items()]
    return "\n".join([*head, "SHA256:", *rows]) + "\n"


def date(**ago: float) -> str:
    """A moment before or after now (``days=-1``), as release files write it."""
    return format_datetime(NOW + timedelta(**ago)).replace("+0000", "UTC")


def armored(text: str) -> bytes:
    """What looks signed."""
    marks = ("BEGIN PGP SIGNED MESSAGE", "BEGIN PGP SIGNATURE", "END PGP SIGNATURE")
    first, second, third = (f"-----{mark}-----\n" for mark in marks)
    return f"{first}Hash: SHA256\n\n{text}{second}\n{third}".encode()


@contextlib.contextmanager
def serving(mirror: FakeMirror) -> Iterator[FakeMirror]:
    """Serve what the mirror has, on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.removeprefix("/debian/")
            mirror.asked.append(path)
            found = mirror.files.get(path)
            if found is None:
                self.send_error(404)
            elif isinstance(found, bytes):
                answer(self, found)
            else:
                with contextlib.suppress(ConnectionError):
                    found(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        mirror.url = f"http://127.0.0.1:{server.server_port}/debian"
        try:
            yield mirror
        finally:
            server.shutdown()
            thread.join()


def answer(handler: BaseHTTPRequestHandler, data: bytes, length: int | None = None) -> None:
    """Send data, with another length than it has where one is given."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data) if length is None else length))
    handler.end_headers()
    handler.wfile.write(data)


def without_end(handler: BaseHTTPRequestHandler) -> None:
    """Send zeros until nobody listens."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 16))
