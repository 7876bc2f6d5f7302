"""What every test stands on: DirectML only when asked for, and no runtime of the user's in the way else."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from tests.in_process import run

__all__ = ["run"]

_OPTION = "--dml"

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests load models in this process as well


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, action="store_true", help="run the tests that need the real DirectML (minutes)")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(_OPTION):
        _demand_directml(config)
    else:
        # As on a machine without the runtime: a test that proves a model must not take minutes on some machines only.
        os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parent / "no-runtime-here")
        if sys.platform == "win32":
            os.environ["PYTHONPATH"] = str(Path(__file__).parent / "no_directml")
            importlib.import_module("tests.no_directml.sitecustomize")


def _demand_directml(config: pytest.Config) -> None:
    """Tests that were asked for and cannot run are an error, never a row of skips."""
    from dmlprep.runtime import dml_status

    if hasattr(config, "workerinput"):  # a worker of pytest-xdist: the controller has asked already
        return
    status = dml_status()
    if not status.available:
        raise pytest.UsageError(f"{_OPTION}: {status.reason}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption(_OPTION):
        return
    skip = pytest.mark.skip(reason="needs a DirectML session: run pytest --dml where dmlprep runtime status is good")
    for item in items:
        if "dml" in item.keywords:
            item.add_marker(skip)
