"""A command that is told to stop ends at once, with nothing left, and says by its exit code what ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.endless import endless
from tests.system import not_on_windows

_GENEROUS = 60.0
"""Seconds for what takes less than two on a machine with nothing else to do, and ten minutes where nothing ends it."""

_ENDS = ["SIGINT", "SIGTERM"]
if signal.getsignal(getattr(signal, "SIGHUP", signal.SIGINT)) != signal.SIG_IGN:  # nohup: then dmlprep ignores it too
    _ENDS.append("SIGHUP")


def start_command(line: list[str], folder: Path) -> subprocess.Popen[str]:
    (folder / "tmp").mkdir()
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder / "tmp"))
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)  # what is ignored would be inherited
    process = subprocess.Popen(
        [sys.executable, *line], env={**os.environ, **places}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    signal.signal(signal.SIGINT, ours)
    return process


def _until(there: Path, pattern: str) -> None:
    end = time.monotonic() + _GENEROUS
    while not list(there.glob(pattern)) and time.monotonic() < end:
        time.sleep(0.05)


@not_on_windows("signals are sent otherwise")
@pytest.mark.parametrize("name", _ENDS)
def test_a_command_whose_session_never_ends(name: str, tmp_path: Path) -> None:
    model = endless(tmp_path / "endless.onnx")
    line = ["-m", "dmlprep", "prepare", str(model), "-o", str(tmp_path / "out"), "-r", "@check-only", "--device", "cpu"]
    process = start_command(line, tmp_path)
    _until(tmp_path / "tmp", "*/session-*/feed*")
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=_GENEROUS)
    assert process.returncode == 128 + getattr(signal, name), out + err
    assert err.strip().endswith("stopped; no partial files remain")
    assert "Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["endless.onnx", "tmp"]
    assert not list((tmp_path / "tmp").iterdir())


_EARLY = """
import os, signal, sys, threading
from dmlprep.cli.main import main
start = threading.Thread.start
def told(thread):
    os.kill(os.getpid(), signal.{name})
    start(thread)
threading.Thread.start = told
sys.argv = ["dmlprep", "--version"]
main()
"""


@not_on_windows("signals are sent otherwise")
@pytest.mark.parametrize("name", _ENDS)
def test_a_signal_while_the_program_begins_to_watch_for_them(name: str, tmp_path: Path) -> None:
    process = start_command(["-c", _EARLY.format(name=name)], tmp_path)
    _, err = process.communicate(timeout=_GENEROUS)
    assert process.returncode == 128 + getattr(signal, name), err
    assert err.strip() == "stopped; no partial files remain"


_DEAF = """
import signal, sys, time
from dmlprep.cli.stopping import Stopping
from dmlprep.core.files.run_folder import run_folder
Stopping().install()
(run_folder() / "ready").touch()
while True:
    try:
        {waits}
    except KeyboardInterrupt:
        pass
"""


@not_on_windows("signals are sent otherwise")
@pytest.mark.parametrize(
    "waits", ["time.sleep(600)", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); time.sleep(600)"]
)
def test_a_main_thread_that_does_not_leave_is_not_waited_for(waits: str, tmp_path: Path) -> None:
    """Somebody catches the exception, or the main thread is where no handler is called."""
    process = start_command(["-c", _DEAF.format(waits=waits)], tmp_path)
    _until(tmp_path / "tmp", "*/ready")
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=_GENEROUS)
    assert process.returncode == 143, err
    assert "stopped; no partial files remain" in err
    assert not list((tmp_path / "tmp").iterdir())


_WINDOW = """
import sys, time
from dmlprep.cli.stopping import Stopping
from dmlprep.core.files.run_folder import at_end, run_folder
at_end(lambda: sys.stdout.write("ended\\n"))
folder = run_folder()
try:
    Stopping().console_event(2)
finally:
    assert False, "it lives on"
"""


def test_a_console_window_that_closes(tmp_path: Path) -> None:
    """What Windows calls in a thread, called here."""
    process = start_command(["-u", "-c", _WINDOW], tmp_path)
    out, err = process.communicate(timeout=_GENEROUS)
    assert process.returncode == (130 if sys.platform == "win32" else 143), err
    assert "ended" in out
    assert not list((tmp_path / "tmp").iterdir())


def test_a_start_sweeps_what_a_killed_run_left(tmp_path: Path) -> None:
    left = tmp_path / "tmp" / "dmlprep-run-0123abcd"
    process = start_command(["-c", "pass"], tmp_path)
    process.communicate()
    (left / "session-1").mkdir(parents=True)
    (left / "lock").touch()
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(tmp_path / "tmp"))}
    subprocess.run(
        [sys.executable, "-m", "dmlprep", "explain", "DP501"], env=environment, check=True, capture_output=True
    )
    assert not left.exists()
