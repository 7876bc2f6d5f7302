"""Jobs as processes: what becomes of each, how many at once, and that none is left behind."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from dmlprep.fleet import Ended, LocalEngine, Started, Task
from dmlprep.fleet.engine import Progress
from dmlprep.fleet.needs import Room
from dmlprep.process.starting import file_command
from tests.living import alive, gone_within

_GIB = 1 << 30


def _engine(folder: Path, program: str, jobs: int = 2, memory: int = 0) -> LocalEngine:
    path = folder / "program.py"
    path.write_text(program)
    return LocalEngine(Room(jobs, memory), lambda arguments: file_command(str(path), arguments))


def _ended(engine: LocalEngine) -> dict[str, Ended]:
    """All that the engine has, to its end."""
    found: dict[str, Ended] = {}
    while events := list(engine.results(wait=True)):
        found |= {event.name: event for event in events if isinstance(event, Ended)}
    return found


def test_what_a_job_says_and_how_it_ends(tmp_path: Path) -> None:
    engine = _engine(
        tmp_path,
        """
import os, sys
sys.stderr.write("pin: changed \\u00e9\\n")
if sys.argv[1] == "wrong":
    print("error: no such file\\n  fix: x", file=sys.stderr)
    sys.exit(2)
if sys.argv[1] == "dies":
    os._exit(9)
""",
    )
    for name in ("good", "wrong", "dies"):
        engine.submit(Task(name, (name,)))
    events = []
    while said := list(engine.results(wait=True)):
        events += said
    engine.close()
    assert Started("good") in events
    assert Progress("good", "pin: changed é") in events
    ended = {event.name: event for event in events if isinstance(event, Ended)}
    assert (ended["good"].exit_code, ended["good"].error) == (0, "")
    assert (ended["wrong"].exit_code, ended["wrong"].error) == (2, "pin: changed é error: no such file fix: x")
    assert ended["dies"].exit_code == 70
    assert "exit code 9" in ended["dies"].error


def test_as_many_at_once_as_there_is_memory_for(tmp_path: Path) -> None:
    program = "import time; time.sleep(0.4)"
    engine = _engine(tmp_path, program, jobs=8, memory=8 * _GIB)
    running, most = set(), 0
    for number in range(4):
        engine.submit(Task(str(number), (), memory=3 * _GIB))
    engine.submit(Task("large", (), memory=100 * _GIB))  # it runs all the same, alone
    while events := list(engine.results(wait=True)):
        for event in events:
            if isinstance(event, Started):
                running.add(event.name)
                assert event.name != "large" or running == {"large"}
                most = max(most, len(running))
            elif isinstance(event, Ended):
                running.discard(event.name)
                assert event.exit_code == 0, event.error
    engine.close()
    assert most == 2


def test_it_takes_no_more_than_it_soon_has_room_for(tmp_path: Path) -> None:
    engine = _engine(tmp_path, "", jobs=1)
    assert engine.room == 2
    engine.submit(Task("a", ()))
    engine.submit(Task("b", ()))
    assert engine.room <= 1
    assert len(_ended(engine)) == 2
    assert engine.room == 2
    assert list(engine.results(wait=True)) == []
    engine.close()


@pytest.mark.skipif(sys.platform != "linux", reason="Wine tells no private memory of others")
def test_a_job_beyond_its_memory_is_ended(tmp_path: Path) -> None:
    program = "import time; held = bytearray(300 << 20); time.sleep(60)"
    engine = _engine(tmp_path, program, jobs=2, memory=200 << 20)
    engine.submit(Task("a", (), memory=1 << 20))
    ended = _ended(engine)["a"]
    engine.close()
    assert ended.exit_code == 3
    assert "the limit is 100 MiB" in ended.error
    assert "use fewer --jobs" in ended.error
    engine = _engine(tmp_path, program, jobs=1, memory=100 << 20)
    engine.submit(Task("a", ()))
    assert "a machine with more memory" in _ended(engine)["a"].error
    engine.close()


def test_a_closed_engine_leaves_no_process(tmp_path: Path) -> None:
    program = "import os, sys, time; print(os.getpid(), file=sys.stderr, flush=True); time.sleep(600)"
    engine = _engine(tmp_path, program)
    for name in "abc":
        engine.submit(Task(name, ()))
    pids: list[int] = []
    while len(pids) < 2:
        pids += [int(event.text) for event in engine.results(wait=True) if isinstance(event, Progress)]
    engine.close()
    assert all(gone_within(pid, 5) for pid in pids)
    assert not any(map(alive, pids))
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith("dmlprep-job-")}


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    engine = LocalEngine(Room(1, 0), lambda arguments: [str(tmp_path / "nothing")])
    engine.submit(Task("a", ()))
    ended = _ended(engine)["a"]
    engine.close()
    assert ended.exit_code == 70
    assert "cannot be started" in ended.error
