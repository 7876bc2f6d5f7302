"""Processes end with the one that started them, whatever ends it, and at once where Ctrl-C passes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.endless import endless
from tests.living import gone_within
from tests.system import break_off, not_on_windows

_GENEROUS = 60.0
"""Seconds for what takes less than two on a machine with nothing else to do, and ten minutes where nothing ends it."""

_SESSION = """
import numpy as np
from pathlib import Path
from dmlprep.runtime import cpu_host
with cpu_host() as host, host.open(Path({model!r})) as session:
    print(host.worker().pid, flush=True)
    session.run({{"x": np.ones(4, np.float32)}})
"""
_OWN_SESSION = """
import numpy as np
from pathlib import Path
from dmlprep.runtime import open_cpu
with open_cpu(Path({model!r})) as session:
    print(session.child.pid, flush=True)
    session.run({{"x": np.ones(4, np.float32)}})
"""
_ONNXSIM = """
import onnx, time
from dmlprep.runtime.tools import onnxsim
from dmlprep.process.child import Child
of_file = Child.of_file
def told(*arguments, **more):
    child = of_file(*arguments, **more)
    print(child.pid, flush=True)
    return child
Child.of_file = told
onnxsim.simplify(onnx.load({model!r}))
time.sleep(600)
"""
_TOOL = """
import sys
from dmlprep.process.tools import run_tool
code = "import os, time; open({note!r}, 'w').write(str(os.getpid()) + '!'); time.sleep(600)"
run_tool([sys.executable, "-c", code], limit=600)
"""

Begin = Callable[[str], tuple["subprocess.Popen[str]", int]]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Start a program; it, and the process that it started for its work."""
    (tmp_path / "tmp").mkdir()
    note = tmp_path / "note"

    def program(code: str) -> tuple[subprocess.Popen[str], int]:
        places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(tmp_path / "tmp"))
        line = [sys.executable, "-c", code.format(model=str(endless(tmp_path / "endless.onnx")), note=note.as_posix())]
        # Where the tests run in the background, SIGINT is ignored, and what they start inherits that.
        ours = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            line,
            env={**os.environ, **places},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        signal.signal(signal.SIGINT, ours)
        assert process.stdout is not None
        if code != _TOOL:
            return process, int(process.stdout.readline())
        end = time.monotonic() + _GENEROUS
        while not (note.exists() and note.read_text().endswith("!")) and time.monotonic() < end:
            time.sleep(0.05)
        return process, int(note.read_text().rstrip("!"))

    return program


@pytest.mark.parametrize("code", [_SESSION, _ONNXSIM, _TOOL], ids=["session", "onnxsim", "tool"])
def test_a_worker_dies_with_its_parent(code: str, begin: Begin) -> None:
    process, worker = begin(code)
    time.sleep(0.5)
    if sys.platform != "win32":
        # So that it cannot end by itself when its pipes close.
        os.kill(worker, signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=_GENEROUS)
    assert gone_within(worker, _GENEROUS), "it lives on"


@break_off
@pytest.mark.parametrize("code", [_SESSION, _OWN_SESSION, _TOOL], ids=["session", "own session", "tool"])
def test_ctrl_c_ends_a_program_that_waits_for_its_worker(code: str, begin: Begin, tmp_path: Path) -> None:
    """A program of others, which leaves signals as Python has them."""
    process, worker = begin(code)
    time.sleep(0.5)
    process.send_signal(signal.CTRL_BREAK_EVENT if sys.platform == "win32" else signal.SIGINT)
    _, err = process.communicate(timeout=_GENEROUS)
    assert sys.platform == "win32" or "KeyboardInterrupt" in err
    assert gone_within(worker, _GENEROUS)
    assert sys.platform == "win32" or not list((tmp_path / "tmp").iterdir())


@not_on_windows("no fork")
def test_a_process_that_was_forked_off_ends_none_of_its_parents() -> None:
    code = """
import os, sys
from dmlprep.runtime import cpu_host
with cpu_host() as host:
    worker = host.worker()
    child = os.fork()
    if child == 0:
        with cpu_host() as other:
            assert other.worker().alive
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert worker.alive and worker.exchange.is_dir()
    worker.ask([["hello"]], limit=60.0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
