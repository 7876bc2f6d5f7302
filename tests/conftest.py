"""What every test stands on: DirectML only when asked for, and no runtime of the user's in the way else."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.in_process import run

# Machines are busy: no property is wrong because an example took long to make or to try.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

__all__ = ["run"]

_OPTION, _BUILDS, _DOCS = "--dml", "--builds", "--docs"
_LEFT_OUT = pytest.StashKey[int]()

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests load models in this process as well


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, action="store_true", help="run the tests that need the real DirectML (minutes)")
    parser.addoption(_BUILDS, action="store_true", help="run the tests that run whole build systems (minutes)")
    parser.addoption(_DOCS, action="store_true", help="run the tests that build the site and follow the tutorial")
    parser.addoption("--slow", action="store_true", help="run the tests that are marked slow, too (minutes)")


def pytest_configure(config: pytest.Config) -> None:
    # Where the tools of scripts/build_tools.py are; workers of pytest-xdist get it from here.
    os.environ.setdefault("DMLPREP_TESTS_CACHE", os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser()))
    if config.getoption(_OPTION):
        _demand_directml(config)
    else:
        # As on a machine without the runtime: a test that proves a model must not take minutes on some machines only.
        os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parent / "no-runtime-here")
        if sys.platform == "win32":
            os.environ["PYTHONPATH"] = str(Path(__file__).parent / "no_directml")
            importlib.import_module("tests.no_directml.sitecustomize")


@pytest.fixture(autouse=True)
def _measured_now(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests on DirectML measure, whatever verdicts the user's cache holds."""
    # A patch of its own: the fixture ``monkeypatch`` would be undone later than those that tests ask for.
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption(_OPTION) and "dml" in request.keywords:
            patch.setattr(importlib.import_module("dmlprep.pipeline.prepare"), "verdict_folder", lambda: None)
        yield


def _demand_directml(config: pytest.Config) -> None:
    """Tests that were asked for and cannot run are an error, never a row of skips."""
    from dmlprep.runtime import dml_status

    if hasattr(config, "workerinput"):  # a worker of pytest-xdist: the controller has asked already
        return
    status = dml_status()
    if not status.available:
        raise pytest.UsageError(f"{_OPTION}: {status.reason}")


def _leave_out(config: pytest.Config, items: list[pytest.Item], option: str, what: str) -> None:
    """Skip what was not asked for; the marker has the name of the option."""
    if config.getoption(option):
        return
    for item in items:
        if option.removeprefix("--") in item.keywords:
            item.add_marker(pytest.mark.skip(reason=f"{what}: run pytest {option}"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        out = [item for item in items if "slow" in item.keywords]
        items[:] = [item for item in items if "slow" not in item.keywords]
        config.stash[_LEFT_OUT] = len(out)
        config.hook.pytest_deselected(items=out)
    _leave_out(config, items, _BUILDS, "runs a whole build system")
    _leave_out(config, items, _DOCS, "builds the site or follows the tutorial")
    items.sort(key=lambda item: "long" not in item.keywords)
    if config.getoption(_OPTION):
        return
    skip = pytest.mark.skip(reason="needs a DirectML session: run pytest --dml where dmlprep runtime status is good")
    for item in items:
        if "dml" in item.keywords:
            item.add_marker(skip)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:  # a worker of pytest-xdist
        output["left_out"] = session.config.stash.get(_LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(_LEFT_OUT, 0):
        terminalreporter.write_line(f"left out: {count} slow tests (pytest --slow runs them, and so does CI)")
