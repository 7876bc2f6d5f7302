"""A run's folder, and a package of it for Python, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dmlprep import api
from tests.fixtures_index import fixture
from tests.kept_workers import kept_workers, own_workers

__all__ = ["app", "kept_workers", "made", "own_workers", "proved"]


@pytest.fixture(scope="session")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that the CPU alone proved."""
    folder = tmp_path_factory.mktemp("run") / "out"
    one = fixture("residual_cnn")
    record = api.prepare(one.path, out=folder, recipe="@vision-fp16", pins={"batch": 1}, device="cpu")
    assert record.exit_code == 0
    return folder


@pytest.fixture(scope="session")
def made(proved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package for Python."""
    folder = tmp_path_factory.mktemp("packages") / "app"
    api.package_model(proved, out=folder, language="python", unproven=True)
    return folder


@pytest.fixture
def app(made: Path, tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "app"))
