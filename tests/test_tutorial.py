"""The tutorial, followed to the letter in a fresh environment (``pytest --docs``; needs torch, 6 GB of disk)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TextIO

import pytest

from tests.shown import Typed, steps, unlike

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
_DISK = 8 << 30
_END = "@@tutorial-exit-code"


def test_what_is_shown_is_held_against_what_is_printed() -> None:
    printed = ["wrote a", "took 1.25 s, kit 8c06f60657d4", "c"]
    assert unlike([], printed) == ""
    assert unlike(["wrote a", "...", "c"], printed) == ""
    assert unlike(["wrote a", "took 3.5 s, kit 000000000000", "c"], printed) == ""
    assert unlike(["wrote ...", "took ... kit ...", "c"], printed) == ""
    assert unlike(["wrote a", "c"], printed)
    assert unlike(["wrote a"], printed)
    assert unlike(["...", "d"], printed)


def test_the_page_has_commands_and_a_file() -> None:
    found = list(steps(PAGE.read_text(encoding="utf-8")))
    words = {one.command.split()[1] for one in found if isinstance(one, Typed) and one.command.startswith("dmlprep")}
    assert words >= {"check", "init", "prepare", "report", "bench", "compare", "bisect", "kit", "package"}
    assert [one[0] for one in found if isinstance(one, tuple)] == ["export.py"]


class Shell:
    """One bash, as a reader has it."""

    def __init__(self, folder: Path) -> None:
        cache = os.environ["DMLPREP_TESTS_CACHE"]  # with the DirectML runtime, where it is installed
        keep = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        with (folder / "stderr.txt").open("w") as stderr:
            self._bash = self._start(folder, {**keep, "XDG_CACHE_HOME": cache, "TMPDIR": str(folder)}, stderr)

    @staticmethod
    def _start(folder: Path, env: dict[str, str], stderr: TextIO) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def run(self, command: str) -> tuple[int, list[str]]:
        """Exit code and lines of the output; ``$?`` is as after the command."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command} </dev/null\n_code=$?; echo; echo {_END} $_code; (exit $_code)\n")
        self._bash.stdin.flush()
        lines = []
        for line in self._bash.stdout:
            if line.startswith(_END):
                return int(line.split()[1]), lines[:-1] if lines and not lines[-1] else lines
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the shell ended at: {command}")

    def close(self) -> None:
        """Let it go."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.close()
        self._bash.kill()
        self._bash.wait(60)
        self._bash.stdout.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A copy of the checkout in a folder that goes away: pytest would keep 6 GB three times."""
    if sys.platform != "linux":
        pytest.skip("the tutorial's commands are those for Linux")
    with tempfile.TemporaryDirectory(prefix="tutorial-") as made:
        if shutil.disk_usage(made).free < _DISK:
            pytest.skip(f"less than {_DISK >> 30} GiB of disk for torch")
        hidden = shutil.ignore_patterns(".git", ".venv*", "build", "dist", "*_cache", "__pycache__", "out")
        shutil.copytree(ROOT, Path(made) / "dmlprep", ignore=hidden)
        yield Path(made)


@pytest.mark.docs
def test_the_tutorial_followed_to_the_letter(folder: Path) -> None:
    asked = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":none:",
        "-d",
        str(folder / "w"),
    ]
    for package in ("torch", "onnxscript"):
        done = subprocess.run([*asked, package], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{package} cannot be had: {done.stderr.strip().splitlines()[-1]}")
    shutil.rmtree(folder / "w")
    with closing(Shell(folder)) as shell:
        wrong = _follow(shell, folder)
    assert wrong == [], "\n\n".join(wrong)


def _follow(shell: Shell, folder: Path) -> list[str]:
    """Where the output is not what the page shows; a command that fails unannounced is an error at once."""
    code, at = shell.run("cd dmlprep")[0], folder / "dmlprep"
    wrong = []
    followed = list(steps(PAGE.read_text(encoding="utf-8")))
    for row, one in enumerate(followed):
        if isinstance(one, tuple):
            (at / one[0]).write_text(one[1], encoding="utf-8")
            continue
        code, printed = shell.run(one.command)
        errors = (folder / "stderr.txt").read_text(encoding="utf-8")[-2000:]
        if code and one.command == "dmlprep runtime install":
            pytest.skip(f"the DirectML runtime cannot be had: {errors.strip()}")
        after = followed[row + 1] if row + 1 < len(followed) else None
        told = isinstance(after, Typed) and after.command == "echo $?"
        assert code == 0 or told, f"{one.command}\n{printed}\n{errors}"
        if one.command.startswith("mkdir"):
            at = folder / "tagger"
        if difference := unlike(one.shown, printed):
            wrong.append(f"$ {one.command}\n{difference}")
    return wrong
