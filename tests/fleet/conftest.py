"""A folder with a fleet whose jobs are run by a stand-in, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dmlprep.fleet import Ended, FleetRequest, Ran, Started, Task, jobs_of, run_fleet
from dmlprep.fleet.engine import Event, Progress
from dmlprep.pipeline.project import read_project
from tests.fleet.standin import prepare

TEXT = """
out = "build"
device = "cpu"
[models."m/*.onnx"]
sizes = { small = { batch = 1 }, large = { batch = 2 } }
"""


class InProcess:
    """An engine that runs a task when its result is asked for."""

    def __init__(self, stop_at: str = "") -> None:
        self.tasks: list[Task] = []
        self.ran: list[str] = []
        self.closed = False
        self.stop_at = stop_at

    @property
    def room(self) -> int:
        return 2 - len(self.tasks)

    def submit(self, task: Task) -> None:
        assert self.room > 0
        self.tasks.append(task)

    def results(self, *, wait: bool) -> Iterator[Event]:
        if not wait:
            return
        task = self.tasks.pop(0)
        yield Started(task.name)
        if task.name == self.stop_at:
            raise KeyboardInterrupt
        self.ran.append(task.name)
        said: list[str] = []
        code = prepare(task.arguments, said.append)
        for line in said:
            yield Progress(task.name, line)
        error = said[-1].removeprefix("error: ") if code == 2 else ""
        yield Ended(task.name, code, error, 1.0)

    def close(self) -> None:
        self.closed = True


class Fleet:
    """A folder with a fleet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "build"
        self.engine = InProcess()

    def write(self, text: str = TEXT) -> None:
        (self.folder / "dmlprep.toml").write_text(text)

    def model(self, name: str, text: str = "good") -> Path:
        path = self.folder / "m" / f"{name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, **options: object) -> Ran:
        self.engine = InProcess(str(options.pop("stop_at", "")))
        fleet = read_project(self.folder / "dmlprep.toml")
        request = FleetRequest(
            file=fleet.file,
            base=fleet.folder,
            out=self.out,
            jobs=jobs_of(fleet),
            engine=lambda: self.engine,
            **options,
        )
        return run_fleet(request)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.chdir(tmp_path)
    made = Fleet(tmp_path)
    made.write()
    return made
