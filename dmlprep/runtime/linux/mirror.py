"""Files of a Debian mirror, each checked against a digest that the archive's signature vouches for."""

from __future__ import annotations

import hashlib
import http.client
import lzma
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from dmlprep.errors import CheckNotRun, UsageError
from dmlprep.runtime.linux.archive import Archive, Package, parse_release

__all__ = ["DEFAULT_KEYRING", "Mirror", "mirror_of_this_system", "verify_release"]

DEFAULT_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""Where Debian's package debian-archive-keyring puts its keys."""

_TIMEOUT = 60.0
"""Seconds without a byte until a download is given up."""

_TRIES = 3


def mirror_of_this_system(etc: Path = Path("/etc/apt")) -> str:
    """The Debian mirror that apt is set up to use here, or "" when this is no Debian.

    Reads both forms of source lists (sources.list(5)). Mirrors of other distributions and of debian-security do not
    count.
    """
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))]
    lines = [line for file in files if file.is_file() for line in file.read_text(errors="replace").splitlines()]
    urls = [m.group(1) for line in lines if (m := re.match(r"\s*deb\s+(?:\[[^]]*\]\s+)?(https?://\S+)", line))]
    for file in sorted((etc / "sources.list.d").glob("*.sources")):
        for line in file.read_text(errors="replace").splitlines():
            if line.lower().startswith("uris:"):
                urls += [url for url in line.split(":", 1)[1].split() if url.startswith("http")]
    return next((url.rstrip("/") for url in urls if url.rstrip("/").endswith("/debian")), "")


def verify_release(raw: bytes, keyring: Path | None) -> tuple[str, str]:
    """The signed text of an ``InRelease`` file, and how it was verified.

    Args:
        keyring: keys of the archive; ``None`` takes the text unverified.

    Raises:
        CheckNotRun: gpgv or the keyring is missing.
        UsageError: the signature is bad.
    """
    if keyring is None:
        body = raw.decode().partition("\n\n")[2].partition("\n-----BEGIN PGP SIGNATURE")[0]
        return "\n" + body + "\n", "not verified"
    if shutil.which("gpgv") is None or not keyring.is_file():
        raise CheckNotRun(
            "the Debian archive's signature cannot be verified: gpgv or its keyring is missing",
            where=str(keyring),
            fix="install gpgv and debian-archive-keyring, or pass --keyring FILE, or accept the risk with --unverified",
        )
    with tempfile.TemporaryDirectory() as folder:
        signed, text = Path(folder, "InRelease"), Path(folder, "Release")
        signed.write_bytes(raw)
        command = ["gpgv", "--keyring", str(keyring.resolve()), "--status-fd", "1", "--output", str(text), str(signed)]
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        # The archive signs with several keys at once; one good signature by a key of the ring is enough.
        good = re.findall(r"^\[GNUPG:\] VALIDSIG (\w+)", result.stdout, re.M)
        if not good or "[GNUPG:] BADSIG" in result.stdout or not text.is_file():
            raise UsageError(
                "the Debian archive's release file is not signed by a key of the keyring",
                where=str(keyring),
                fix="update debian-archive-keyring, or use another mirror",
            )
        return "\n" + text.read_text(), f"signed by {good[0]}"


class Mirror:
    """A Debian mirror.

    Args:
        url: address of the folder that holds ``dists`` and ``pool``.
        keyring: keys of the archive, ``None`` to accept unsigned indexes.
        say: told each thing that is done, and how far it is: (what, bytes done, bytes in all).
    """

    def __init__(self, url: str, keyring: Path | None, say: Callable[[str, int, int], None]) -> None:
        if not re.match(r"https?://", url):
            raise UsageError("a mirror is an http or https address", where=url, fix="pass --mirror URL")
        self.url = url.rstrip("/")
        self.keyring = keyring
        self.say = say
        self.signatures: dict[str, str] = {}

    def _get(self, path: str) -> bytes:
        address = f"{self.url}/{quote(path, safe='/+~:')}"
        for attempt in range(1, _TRIES + 1):
            try:
                with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:
                    data: bytes = answer.read()
                    return data
            except (http.client.HTTPException, OSError) as error:
                gone = isinstance(error, urllib.error.HTTPError) and error.code in (403, 404, 410)
                if gone or attempt == _TRIES:
                    fix = "see that the address is that of a Debian mirror and can be reached, then run it again"
                    raise CheckNotRun(f"cannot be fetched: {error}", where=address, fix=fix) from error
        raise AssertionError

    def archive(self, suite: str, architecture: str = "amd64") -> Archive:
        """The package index of a suite, verified."""
        self.say(f"package index of {suite}", 0, 0)
        text, self.signatures[suite] = verify_release(self._get(f"dists/{suite}/InRelease"), self.keyring)
        path = f"main/binary-{architecture}/Packages.xz"
        files = parse_release(text)
        if path not in files:
            raise UsageError(f"the release file of {suite} names no {path}", where=self.url)
        digest, _size = files[path]
        raw = self._get(f"dists/{suite}/{path}")
        _check(raw, digest, path)
        return Archive(suite, lzma.decompress(raw).decode("utf-8", "replace"))

    def fetch(self, packages: Sequence[Package], folder: Path) -> None:
        """Put packages into ``folder``; what is there with the right digest is not fetched again."""
        folder.mkdir(parents=True, exist_ok=True)
        total = sum(package.size for package in packages)
        done = 0

        def one(package: Package) -> int:
            target = folder / Path(package.filename).name
            if not (target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == package.sha256):
                raw = self._get(package.filename)
                _check(raw, package.sha256, package.filename)
                part = target.with_name(target.name + ".part")
                part.write_bytes(raw)
                part.replace(target)
            return package.size

        with ThreadPoolExecutor(4) as pool:
            for size in pool.map(one, packages):
                done += size
                self.say("packages", done, total)


def _check(raw: bytes, digest: str, path: str) -> None:
    if hashlib.sha256(raw).hexdigest() != digest:
        raise CheckNotRun(
            "the file is not the one that the signed index names",
            where=path,
            fix="the mirror may be in the middle of an update: run it again in an hour, or use another mirror",
        )
