"""What every test stands on: DirectML only when asked for, and no runtime of the user's in the way else."""

from __future__ import annotations

import contextlib
import gc
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

gc.disable()  # until the tests are collected: collection makes many objects and drops few

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import a share of the test files first, if this is one of several workers that run the whole suite.

    Each worker imports every test file. In a fresh checkout, compiling them takes longer than importing them. So each
    worker begins with other files, and uses what the other workers compiled for the rest.
    """
    config = session.config
    worker = getattr(config, "workerinput", None)
    if worker is None or list(config.args) != config.getini("testpaths"):
        return
    top = config.rootpath
    files = sorted(path for folder in config.args for path in (top / folder).rglob("test_*.py"))
    for path in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        # An error of an import, or a file that skips itself, comes again when the file is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(top).with_suffix("").parts))


_REMOVALS = "tests/core/files/test_removals.py"
_TOGETHER = {
    **dict.fromkeys(("tests/kit", "tests/package"), ""),  # one kit and one package, which many tests copy
    **dict.fromkeys(
        ("tests/test_layers.py", "tests/test_encodings.py", "tests/test_text_is_not_data.py", _REMOVALS),
        "the syntax trees of all files",
    ),
}
"""Files and folders whose tests run in one worker, because they share what takes seconds to make; and what that is,
where it is not the folder itself."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker a file at a time, or the files of ``_TOGETHER`` where no slow tests are among them."""
    if config.getoption("dist") != "loadfile" or config.getoption("--slow") or config.getoption(_BUILDS):
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            for name in (file, file.rpartition("/")[0]):
                if name in _TOGETHER:
                    return _TOGETHER[name] or name
            return file

    return Together(config, log)


def pytest_collection_finish() -> None:
    """Keep the collected tests out of each later run of the garbage collector."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _demand_directml(config: pytest.Config) -> None:
    """Tests that were asked for and cannot run are an error, never a row of skips."""
    from dmlprep.runtime import dml_status

    if worker := getattr(config, "workerinput", None):  # of pytest-xdist: the controller has asked already
        if sys.platform == "linux":  # Wine's round trips are cheaper where client and server share a processor
            processors = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {processors[int(worker["workerid"].removeprefix("gw")) % len(processors)]})
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
