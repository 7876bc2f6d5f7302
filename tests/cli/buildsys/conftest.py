"""This project's wheel, built once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.buildsys.tools import ROOT, caches, run


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, in a folder of its own."""
    out = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=ROOT)
    assert done.code == 0, done.out
    (made,) = out.glob("dmlprep-*.whl")
    return made


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where pip reaches no package index: a fresh environment cannot get what dmlprep needs."""
    folder = tmp_path_factory.mktemp("index")
    done = run(
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "-d",
        folder,
        "hatchling",
        cwd=folder,
        env=caches(folder),
    )
    if done.code:
        pytest.skip(f"pip reaches no package index: {done.out.strip().splitlines()[-1] if done.out else done.code}")
