"""Run cases in processes that may die, hang or eat memory, and judge what they left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dmlprep.portable.memory import Family
from tests.fuzz.cases import Case
from tests.fuzz.fleets import fleet_left
from tests.fuzz.folders import left_of_folder
from tests.fuzz.rooms import CANARY, SECRET

__all__ = ["MEMORY", "SECONDS", "Outcome", "Runner", "found", "run_all", "runners", "save"]

SECONDS = 20.0
"""Seconds of processor time that one command and its workers may use."""

_PATIENCE = 6
"""How much longer by the clock than by the processor a command may take."""

MEMORY = 2 << 30
"""Bytes that a command and its workers may hold."""

_LIVES = 400
"""Cases after which a process is replaced: what an earlier case left in it should not decide much."""

_COMMAND, _FAULT = "command.json", "fault.txt"
"""Files of a finding that are not the case's own."""

_MOST_SAID = 64 << 20
"""Bytes of what a command says that are looked at."""

_COMMANDS = re.compile(r"##(vso)?\[", re.IGNORECASE)
"""What Azure Pipelines and GitHub take for a command anywhere in a line."""

_LOUD = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that do something to a terminal."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        fault: what is wrong with that, empty where nothing is.
        seen: what was said, without its names and numbers: cases that say something new become parents.
    """

    case: Case
    code: int
    fault: str
    seen: str
    seconds: float
    memory: int
    detail: str = ""


class Runner:
    """One process that runs cases, started again when it died.

    Args:
        folder: where cases lie while they run.
        seconds: that one command may take.
        memory: bytes that it and its workers may hold.
    """

    def __init__(self, folder: Path, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._folder, self._seconds, self._memory = folder, seconds, memory
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lives = 0

    def run(self, case: Case) -> Outcome:
        """Run one case; where it took too long, once more in a fresh process: the machine may have been busy."""
        outcome = self._once(case)
        if outcome.fault.startswith("time"):
            outcome = self._once(case)
        return outcome

    def _once(self, case: Case) -> Outcome:
        place = self._folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name, content in case.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        made: dict[str, str] = {}
        for name, target in case.links.items():
            with contextlib.suppress(OSError):  # another file or link of the case is in its place, or above it
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).symlink_to(target)
                made[name] = target
        case = replace(case, links=made)
        began = time.monotonic()
        answer, fault, memory = self._ask(case, began)
        seconds = time.monotonic() - began
        memory, raised = max(memory, int(answer.get("peak", 0))), str(answer.get("raised", ""))
        out, err = self._said("out.txt"), self._said("err.txt")
        code = int(answer.get("code", -1))
        if "Traceback (most recent call last)" in err:  # what --debug shows
            raised = raised or err[-6000:]
        fault = fault or _fault(case, place, code, raised, out, err)
        if not fault and memory > self._memory:
            fault = f"memory: {memory >> 20} MiB"
        if self._lives >= _LIVES:
            self.end()
        return Outcome(case, code, fault, _seen(case.kind, code, out + err), seconds, memory, raised or err[-1500:])

    def _said(self, name: str) -> str:
        try:
            return (self._folder / name).read_bytes()[:_MOST_SAID].decode("utf-8", "surrogateescape")
        except OSError:
            return ""

    def _ask(self, case: Case, began: float) -> tuple[dict[str, Any], str, int]:
        process = self._started()
        family = Family(process.pid)
        assert process.stdin is not None
        memory, used = 0, family.cpu_seconds()
        try:
            process.stdin.write(json.dumps({"folder": str(self._folder), "command": case.command}) + "\n")
            process.stdin.flush()
        except OSError:
            self.end()
            return {}, "crash: the process was gone", 0
        while True:
            with contextlib.suppress(queue.Empty):
                line = self._answers.get(timeout=min(0.25, self._seconds))
                if not line:
                    status = process.wait()
                    self.end()
                    return {}, f"crash: exit status {status}", memory
                late = family.cpu_seconds() - used > self._seconds
                return json.loads(line), "time" if late else "", memory
            memory = max(memory, family.private_bytes())
            late = family.cpu_seconds() - used > self._seconds
            late = late or time.monotonic() - began > _PATIENCE * self._seconds
            if memory > self._memory or late:
                self.end()
                return {}, f"memory: {memory >> 20} MiB" if memory > self._memory else "time", memory

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._answers, self._lives = queue.SimpleQueue(), 0
            temporary = self._folder / "tmp"
            temporary.mkdir(exist_ok=True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="ascii",
                start_new_session=True,
                cwd=Path(__file__).resolve().parents[2],
                env={
                    **os.environ,
                    "NO_COLOR": "1",
                    "TMPDIR": str(temporary),
                    "XDG_CACHE_HOME": str(self._folder / "cache"),
                },
            )
            threading.Thread(target=_read, args=(self._process, self._answers), daemon=True).start()
        self._lives += 1
        return self._process

    def end(self) -> None:
        """End the process and what it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError, ValueError):
                    if pipe is not None:
                        pipe.close()
            self._process = None
            shutil.rmtree(self._folder / "tmp", ignore_errors=True)


def _read(process: subprocess.Popen[str], answers: queue.SimpleQueue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put("")


def _fault(case: Case, place: Path, code: int, raised: str, out: str, err: str) -> str:
    if raised:
        return f"raised: {_last_frame(raised)}"
    if code not in (0, 1, 2, 3):
        said = [line for line in err.splitlines() if line.startswith("error")]
        return f"exit code {code}: {_plain(said[0] if said else '')}"
    if loud := _LOUD.search(out) or _LOUD.search(err):
        return f"printed the character U+{ord(loud[0]):04X}"
    lines = (out + "\n" + err).splitlines()
    if any(line.startswith("error: forged") for line in lines):
        return "printed a forged line"
    if any(line.lstrip().startswith("::") or _COMMANDS.search(line) for line in lines):
        return "printed a command to a CI machine"
    for name, content in case.files.items():
        if name not in case.own and (not (place / name).is_file() or (place / name).read_bytes() != content):
            return f"changed {name}"
    for name, target in case.links.items():
        if not (place / name).is_symlink() or os.readlink(place / name) != target:
            return "changed a link"
    if (place / CANARY).exists() and "measure.py" not in err:
        return "ran code of the folder without its name"
    if "--format" in case.command and code in (0, 1) and out.strip():
        try:
            json.loads(out)
        except ValueError:
            return "printed broken JSON"
    return _left(case, place, code)


def _left(case: Case, place: Path, code: int) -> str:
    """What is wrong with the files that a command left."""
    known = [*case.files, *case.links]
    given = {str(parent) for name in known for parent in (Path(name), *Path(name).parents)}
    left = {str(p.relative_to(place)) for p in place.rglob("*")} - given
    word = _word(case)
    if word == "fleet":
        left = {name for name in left if not name.startswith("out/.dmlprep-fleet")}
    if hidden := [name for name in left if ".dmlprep" in name]:
        return f"left {_plain(hidden[0])}"
    if any(SECRET in (place / name).read_bytes() for name in left if (place / name).is_file()):
        return "copied a file from outside of the folder"
    if word == "fleet":
        return _of_fleet(case, place, code, left)
    if word == "genai":
        return _of_genai(case, place, code, left)
    if word == "prepare" and "-o" in case.command and case.command[case.command.index("-o") + 1] == "out":
        whole = {"out/model.onnx", "out/run.json"} <= left
        if code == 0 and not whole:
            return "exit code 0 without a result"
        if code and "out/model.onnx" in left:
            return f"exit code {code} with a result"
    return ""


def _word(case: Case) -> str:
    """The name of the command; before it stand options, each with a value."""
    at = 0
    while case.command[at].startswith("--"):
        at += 2
    return case.command[at]


def _of_fleet(case: Case, place: Path, code: int, left: set[str]) -> str:
    if outside := [name for name in left if name.partition("/")[0] != "out"]:
        return f"left {_plain(outside[0])}"
    if case.links:
        return ""  # the reports that are there may be others'
    if "--dry-run" in case.command:
        return f"left {_plain(min(left))}" if left else ""
    return "" if "--shard" in case.command or "--only" in case.command else fleet_left(place / "out", code)


def _of_genai(case: Case, place: Path, code: int, left: set[str]) -> str:
    at_most = {"out"} if case.command[1] == "prepare" else set[str]()
    if outside := [name for name in left if name.partition("/")[0] not in at_most]:
        return f"left {_plain(min(outside))}"
    if case.command[1] != "prepare":
        return ""
    given = {name.partition("/")[2]: held for name, held in case.files.items()}
    return left_of_folder(place / "out", code, given)


def _last_frame(raised: str) -> str:
    """Where it went wrong: of an internal error, where the one behind it was raised, so that not all are one kind."""
    raised = raised.partition("\nThe above exception was the direct cause")[0]
    raised = raised.rpartition("\nDuring handling of the above exception")[2]
    frames = re.findall(r'File "[^"]*?((?:dmlprep|onnx|onnx_ir|rich|click|msgspec)/[^"]*)", line \d+, in (\S+)', raised)
    own = [frame for frame in frames if frame[0].startswith("dmlprep")] or frames
    said = re.findall(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b)", raised, re.MULTILINE)
    return f"{said[-1] if said else '?'} in {'.'.join(own[-1]) if own else '?'}"


def _plain(said: str) -> str:
    """A sentence without its names and numbers."""
    said = re.sub(r"'[^']*'|\"[^\"]*\"", "Q", said)
    return re.sub(r"\d+", "0", re.sub(r"\S{40,}", "W", said))[:120]


def _seen(kind: str, code: int, said: str) -> str:
    codes = sorted(set(re.findall(r"DP\d{3}", said)))
    errors = [_plain(line) for line in said.splitlines() if line.startswith("error")]
    return json.dumps([kind, code, codes, errors[:1]])


def run_all(cases: Iterable[Case], runners: list[Runner], told: Callable[[Outcome], None]) -> list[Outcome]:
    """Run cases side by side, one process each.

    Returns:
        the outcomes in the order of the cases.
    """
    free: queue.SimpleQueue[Runner] = queue.SimpleQueue()
    for runner in runners:
        free.put(runner)

    def one(case: Case) -> Outcome:
        runner = free.get()
        try:
            outcome = runner.run(case)
        finally:
            free.put(runner)
        told(outcome)
        return outcome

    with ThreadPoolExecutor(len(runners)) as pool:
        return list(pool.map(one, cases))


@contextlib.contextmanager
def runners(folder: Path, count: int) -> Iterator[list[Runner]]:
    """Processes that are gone afterwards."""
    made = [Runner(folder / f"runner{number}") for number in range(count)]
    try:
        yield made
    finally:
        for runner in made:
            runner.end()


def save(outcome: Outcome, folder: Path) -> Path:
    """Write a finding down: its files, its command and what was said."""
    name = f"{outcome.case.kind}-{hashlib.sha256(outcome.fault.encode()).hexdigest()[:8]}-{outcome.case.number}"
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    for file, content in outcome.case.files.items():
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_bytes(content)
    case = outcome.case
    more = {"command": case.command, "links": case.links, "own": sorted(case.own)}
    (place / _COMMAND).write_text(json.dumps(more if case.links or case.own else case.command), encoding="utf-8")
    (place / _FAULT).write_bytes(f"{outcome.fault}\n{outcome.detail}\n".encode("utf-8", "backslashreplace"))
    return place


def found(folder: Path) -> Case:
    """The case of a finding that was written down."""
    said = json.loads((folder / _COMMAND).read_text(encoding="utf-8"))
    command, links, own_files = (
        (said["command"], said["links"], said["own"]) if isinstance(said, dict) else (said, {}, ())
    )
    own = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name not in (_COMMAND, _FAULT)]
    files = {file.relative_to(folder).as_posix(): file.read_bytes() for file in own}
    return Case(0, folder.name.split("-")[0], files, tuple(command), links, frozenset(own_files))
