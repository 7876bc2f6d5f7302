"""Run a fleet: known results stay, an engine runs the other jobs, and each result is written when its job ends.

A fleet that was killed continues: a job is done when its ``job.json`` says so, and a result appears as a
whole (``pipeline/prepare.py``). Locks are the system's, which go with the process that holds them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmlprep.core._version import __version__
from dmlprep.core.errors import OutputError, UsageError
from dmlprep.core.files import remove, unreadable, unwritable
from dmlprep.core.files.links import check_no_links
from dmlprep.core.text.documents import toml_value
from dmlprep.fleet.digests import Digests
from dmlprep.fleet.engine import Ended, Engine, Progress, Started, Task
from dmlprep.fleet.keys import Keys, key_of, metric_of
from dmlprep.fleet.matrix import Job, Shard
from dmlprep.fleet.needs import job_memory
from dmlprep.fleet.outcome import Done, done, read_record, without_record
from dmlprep.fleet.places import FILES, MODEL, RECORD, REPORT, Place, State
from dmlprep.pipeline.options import OPTIONS
from dmlprep.portable.locks import held
from dmlprep.record import RunRecord
from dmlprep.record.fleet import FleetRecord, JobRecord, worst

STATE_FOLDER = ".dmlprep-fleet"
"""Folder below the results, which marks them as a fleet's: cached digests, locks, temporary records."""


class FleetObserver:
    """Receiver of a fleet's events. No method has to be overridden."""

    def began(self, total: int) -> None:
        """Report the number of jobs."""

    def runs_code(self, file: str, code: str) -> None:
        """Report that a job will run code named in a file (a metric): ``FILE.py:FUNCTION``; once for each."""

    def job_started(self, name: str) -> None:
        """Report that a job runs."""

    def job_progress(self, name: str, text: str) -> None:
        """Report that a step of it is done."""

    def job_ended(self, row: JobRecord) -> None:
        """Report that a job has ended, or is known from before."""

    def job_removed(self, name: str, whole: bool) -> None:
        """Report that results of a job that the file no longer names were removed; ``whole``: with its folder."""


@dataclass(frozen=True)
class FleetRequest:
    """A fleet to run; other arguments are those of ``dmlprep.api.prepare_fleet``.

    Attributes:
        file, shard, only: for the record; ``base`` is the folder of the file.
        engine: starts the engine of the jobs.
    """

    file: str
    base: Path
    out: Path
    jobs: Sequence[Job]
    engine: Callable[[], Engine]
    shard: Shard = field(default_factory=Shard)
    only: Sequence[str] = ()
    fresh: bool = False
    force: bool = False
    observer: FleetObserver = field(default_factory=FleetObserver)


@dataclass(frozen=True)
class Ran:
    """A fleet that has ended: its record, and for each job, in the same order, its record with the findings alone."""

    record: FleetRecord
    findings: list[RunRecord]


def run_fleet(request: FleetRequest) -> Ran:
    """Run the jobs: one that fails does not end the others. A ``UsageError`` is raised before anything runs."""
    return _Run(request).run()


@dataclass
class _Active:
    """A job that the engine has."""

    job: Job
    key: str
    place: Place
    before: State | None
    lock: contextlib.ExitStack


class _Run:
    """The state of one run."""

    def __init__(self, request: FleetRequest) -> None:
        self._request = request
        self._own = request.out / STATE_FOLDER
        self._digests = Digests(self._own / "digests.json")
        self._keys = Keys(self._digests)
        self._active: dict[str, _Active] = {}
        self._done: dict[str, Done] = {}
        self._announced: set[tuple[str, str]] = set()

    def run(self) -> Ran:
        began = time.monotonic()
        self._check_inputs()
        for job in self._request.jobs:
            self._keys.plan(job)  # errors in recipes and settings come before anything runs
        check_no_links(self._request.out, self._own / "records")
        try:
            (self._own / "records").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(error, self._request.out, "choose another folder with -o") from error
        self._request.observer.began(len(self._request.jobs))
        try:
            self._work()
        finally:
            self._abandon()  # again, now that no job runs: folders that were not empty
            self._digests.save()
        results = [self._done[job.name] for job in self._request.jobs]
        record = FleetRecord(
            file=self._request.file,
            version=__version__,
            shard=str(self._request.shard),
            only=list(self._request.only),
            exit_code=worst(one.row.exit_code for one in results),
            seconds=round(time.monotonic() - began, 3),
            jobs=[one.row for one in results],
        )
        return Ran(record, [one.findings for one in results])

    def _check_inputs(self) -> None:
        """Refuse results that would replace a model that is prepared."""
        models = {os.path.normcase(os.path.realpath(job.model)) for job in self._request.jobs}
        for job in self._request.jobs:
            for name in FILES:
                path = self._request.out / job.name / name
                if os.path.normcase(os.path.realpath(path)) in models:
                    fix = "choose another folder with -o"
                    raise OutputError("a result would overwrite this model of the fleet", where=str(path), fix=fix)

    def _work(self) -> None:
        engine: Engine | None = None
        try:
            for job in self._request.jobs:
                while engine is not None and engine.room < 1:
                    self._hear(engine, wait=True)
                if engine is not None:
                    self._hear(engine, wait=False)
                if (task := self._begin(job)) is not None:
                    engine = engine or self._request.engine()
                    engine.submit(task)
            while engine is not None and self._active:
                self._hear(engine, wait=True)
        except BaseException:
            self._abandon()  # now: after Ctrl-C there is less than a second (cli/stopping.py)
            raise
        finally:
            if engine is not None:
                engine.close()

    def _begin(self, job: Job) -> Task | None:
        """Return the task of a job; ``None`` if its result is known, or it cannot begin."""
        key, lock = "", contextlib.ExitStack()
        try:
            facts = self._keys.facts(job)
            key = key_of(facts)
            place = Place(self._request.out / job.name, self._request.base)
            check_no_links(self._request.out, place.folder)
            if not lock.enter_context(held(lock_of(self._own, job.name))):
                raise OutputError("another run uses this job", where=str(place.folder), fix="wait, then run again")
            state = place.state()
            if not self._request.fresh and (earlier := place.known_state(key, self._digests)) is not None:
                ended = Ended(job.name, earlier.exit_code or 0, earlier.error, earlier.seconds, earlier.code)
                result = done(job, ended, read_record(place.folder / RECORD), key, is_known=True)
                if result.lasting:
                    lock.close()
                    self._end(result)
                    return None
            place.begin(key, force=self._request.force)
        except (OSError, UsageError) as error:
            lock.close()
            wrong = unreadable(error, Path(error.filename or job.model)) if isinstance(error, OSError) else error
            self._end(without_record(job, Ended(job.name, wrong.exit_code, str(wrong), code=wrong.code), key))
            return None
        self._active[job.name] = _Active(job, key, place, state, lock)
        self._announce(job)
        arguments = arguments_of(job, place.folder, self._record(job), fresh=self._request.fresh)
        return Task(job.name, arguments, job_memory(job), job, facts)

    def _announce(self, job: Job) -> None:
        """Announce the code that the job runs because a file names it."""
        plan = self._keys.plan(job)
        file, function = metric_of(job, plan)
        by_recipe = not job.options.get("metric") and not plan.recipe.name.startswith("@")
        named = (plan.recipe.name if by_recipe else self._request.file, f"{file}:{function}")
        if file is not None and named not in self._announced:
            self._announced.add(named)
            self._request.observer.runs_code(*named)

    def _hear(self, engine: Engine, *, wait: bool) -> None:
        observer = self._request.observer
        for event in engine.results(wait=wait):
            if isinstance(event, Started):
                observer.job_started(event.name)
            elif isinstance(event, Progress):
                observer.job_progress(event.name, event.text)
            else:
                self._end(self._settled(self._active.pop(event.name), event))

    def _settled(self, active: _Active, ended: Ended) -> Done:
        """Write the result of a job."""
        record = self._record(active.job)
        with active.lock:
            read = read_record(record)
            if ended.exit_code == 0 and not (active.place.folder / MODEL).is_file():
                read = None  # whatever it says
            result = done(active.job, ended, read, active.key)
            try:
                lasting = result.lasting and self._unchanged(active, result)
                active.place.settle(
                    active.key,
                    result.row.exit_code,
                    self._digests,
                    record=record if result.row.record else None,
                    reads=result.data,
                    error=result.row.error,
                    code="" if result.row.record else result.findings.findings[0].code,
                    seconds=ended.seconds,
                    lasting=lasting,
                )
            except OutputError as error:
                failed = Ended(active.job.name, error.exit_code, str(error), code=error.code)
                result = without_record(active.job, failed, active.key)
            with contextlib.suppress(OSError):
                remove(record)
        return result

    def _unchanged(self, active: _Active, result: Done) -> bool:
        """Return whether the model and its data are still those that the run read."""
        try:
            same = all(self._digests.of(path) == sha for path, sha in result.data.items())
            return same and key_of(self._keys.facts(active.job)) == active.key
        except OSError:
            return False

    def _abandon(self) -> None:
        """Restore the folders of jobs that were stopped."""
        for active in self._active.values():
            with active.lock, contextlib.suppress(OSError, OutputError):
                remove(self._record(active.job))
                active.place.restore(active.before, self._request.out)

    def _end(self, result: Done) -> None:
        self._done[result.row.name] = result
        self._request.observer.job_ended(result.row)

    def _record(self, job: Job) -> Path:
        return self._own / "records" / f"{_short(job.name)}.json"


def lock_of(own: Path, name: str) -> Path:
    """Return the folder that is locked while a run works on a job; ``own`` is ``STATE_FOLDER`` of the fleet."""
    folder = own / "locks" / _short(name)
    check_no_links(own.parent, folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _short(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def arguments_of(job: Job, folder: Path, record: Path, *, fresh: bool = False) -> tuple[str, ...]:
    """Return the command line of a job, without the program; its record also goes to ``record``, even if it fails."""
    words = ["prepare", "-o", str(folder), "--no-project", "--force", "--recipe", job.recipe]
    words += ["--target", job.target] if job.target else []
    for flag, values in (("--pin", job.pins), ("--set", job.settings)):
        for name, value in values.items():
            words += [flag, f"{name}={toml_value(value)}"]
    words += [word for name, value in job.options.items() for word in OPTIONS[name].words(name, value)]
    words += ["--fresh"] if fresh else []
    return (*words, "--record", str(record), "--html", str(folder / REPORT), "--", str(job.model))
