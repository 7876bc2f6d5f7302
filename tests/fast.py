"""``python -m tests.fast``: the tests that a change needs first, in less than a minute.

It asks git what changed: against the point where the branch left main, or on main against the last commit, with what is
not committed yet. Then it runs the tests of these rooms, those of the structure, and one day of a user.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from tests.rooms import TOP

ALWAYS = (
    "tests/test_layers.py",
    "tests/test_text_is_not_data.py",
    "tests/test_prose.py",
    "tests/test_options.py",
    "tests/test_user_day.py",
)
"""Structure and prose of the whole tree, and the main commands from end to end."""

_OTHERS = {
    "recipes": ("tests/pipeline/recipe", "tests/test_docs.py"),
    "docs": ("tests/test_docs.py", "tests/test_docs_commands.py", "tests/test_docs_limits.py"),
    "fixtures": ("tests/test_fixtures.py", "tests/test_cases.py"),
    "scripts": ("tests/test_ci.py", "tests/cli/buildsys"),
    ".ci": ("tests/test_ci.py",),
    "README.md": ("tests/test_readme.py",),
}
"""Tests of what is no room, by the first part of a path."""


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(TOP), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed(since: str | None) -> set[str]:
    """Paths that differ from ``since``, by default from where the branch left main; uncommitted ones too."""
    base = (
        [since]
        if since
        else next(filter(None, (_git("merge-base", "HEAD", one) for one in ("origin/main", "main"))), [])
    )
    head = _git("rev-parse", "HEAD")
    here = {line[3:].split(" -> ")[-1].strip('"') for line in _git("status", "--porcelain", "--untracked-files=all")}
    if not since and base == head:
        return here or set(_git("diff", "--name-only", "HEAD~1"))
    return here | set(_git("diff", "--name-only", *base))


def tests_of(path: str) -> set[str]:
    """The test files and folders that a changed path asks for."""
    parts = PurePosixPath(path).parts
    if parts[0] == "tests":
        if parts[-1].startswith("test_"):
            return {path}
        return {"/".join(parts[:-1])} if parts[-1] == "conftest.py" and len(parts) > 2 else set()
    if parts[0] != "dmlprep":
        return set(_OTHERS.get(parts[0], ()))
    if len(parts) == 2:
        return {"tests/api"}
    if parts[1] == "portable":
        return {"tests/kit", "tests/package"}
    # The folder of the room's part if it has one, with the files beside it; else the whole room.
    folder = TOP.joinpath("tests", *parts[1:3])
    if len(parts) > 3 and folder.is_dir():
        beside = (one for one in folder.parent.glob("test_*.py"))
        return {"/".join(("tests", *parts[1:3])), *(one.relative_to(TOP).as_posix() for one in beside)}
    own = TOP / "tests" / parts[1] / f"test_{parts[-1]}"
    return {"/".join(("tests", parts[1]))} | ({own.relative_to(TOP).as_posix()} if own.is_file() else set())


def chosen(paths: Iterable[str]) -> list[str]:
    """What pytest is given: existing files and folders, none of them twice."""
    wanted = {one for path in paths for one in tests_of(path)} | set(ALWAYS)
    there = {one for one in wanted if (TOP / one).exists()}
    return sorted(one for one in there if not any(one.startswith(f"{other}/") for other in there))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fast", description="The tests that a change needs first.")
    parser.add_argument("--since", metavar="REF", help="what the checkout is compared with")
    parser.add_argument("--list", action="store_true", help="print what would run")
    asked, more = parser.parse_known_args(list(arguments))
    names = chosen(changed(asked.since))
    print("\n".join(names))
    if asked.list:
        return 0
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *more, *names], cwd=TOP, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
