"""A fleet of real processes that is killed in the middle: nothing of it lives on, no lock stays, and it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet.conftest import Fleet
from tests.living import gone_within
from tests.system import break_off

_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import sys
from pathlib import Path
from dmlprep.cli.stopping import Stopping
from dmlprep.core.files.run_folder import end_run
from dmlprep.fleet import FleetObserver, FleetRequest, LocalEngine, jobs_of, run_fleet
from dmlprep.pipeline.project import read_project
from dmlprep.fleet.needs import Room
from dmlprep.process.starting import file_command

class Observer(FleetObserver):
    def job_progress(self, name, text):
        print("progress", name, text, flush=True)
    def job_ended(self, row):
        print("ended", row.name, row.outcome, "kept" if row.reused else "new", flush=True)

if __name__ == "__main__":
    Stopping().install()
    fleet = read_project(Path("dmlprep.toml"))
    command = lambda arguments: file_command(sys.argv[1], arguments)
    request = FleetRequest(
        file="dmlprep.toml", base=fleet.folder, out=Path("build"), jobs=jobs_of(fleet),
        engine=lambda: LocalEngine(Room(1, 0), command), observer=Observer(),
    )
    try:
        print("exit", run_fleet(request).record.exit_code)
    except KeyboardInterrupt:
        end_run()
        sys.exit(130)
"""


def _start(fleet: Fleet) -> subprocess.Popen[str]:
    program = fleet.folder / "program.py"
    program.write_text(_PROGRAM)
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)  # what is ignored would be inherited
    try:
        return subprocess.Popen(
            [sys.executable, str(program), str(Path(__file__).with_name("standin.py"))],
            cwd=fleet.folder,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, ours)


def _until(process: subprocess.Popen[str], start: str) -> str:
    """Read what it says until a line that begins so, which is given."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return line.strip()
    raise AssertionError(f"it never said {start!r}")


@pytest.mark.parametrize("how", ["kill", pytest.param("interrupt", marks=[break_off, pytest.mark.slow])])
def test_it_goes_on_where_it_was(how: str, fleet: Fleet) -> None:
    fleet.write('device = "cpu"\n[models."m/*.onnx"]\n')
    fleet.model("a")
    fleet.model("b", "hangs")
    fleet.model("c")
    process = _start(fleet)
    with process:
        assert _until(process, "ended") == "ended a good new"
        pid = int(_until(process, "progress b pid").split()[-1])
        if how == "kill":
            process.kill()
        else:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        finally:
            process.kill()  # leaving the block waits for it
    assert gone_within(pid, 10)
    if how == "interrupt":
        assert process.returncode == 130
        assert not (fleet.out / "b").exists()
    fleet.model("b")
    with _start(fleet) as again:
        assert again.stdout is not None
        lines = [line.strip() for line in again.stdout if line.startswith(("ended", "exit"))]
    assert lines == ["ended a good kept", "ended b good new", "ended c good new", "exit 0"]
