"""Run a fleet: skip jobs with known results, run the others by an engine, and store each result when its job ends.

A fleet that was killed can be run again, and continues. A job is skipped if its ``job.json`` has an outcome for the
same key and the files are unchanged (``Place.known_state``). A result appears as a whole (``pipeline/prepare.py``). The
system releases the locks when a process ends.
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
"""Name of a folder in the output folder, with cached digests, locks and temporary records. It marks the output."""


class FleetObserver:
    """Receives the events of a fleet. The methods do nothing; override any of them."""

    def began(self, total: int) -> None:
        """Called once at the start, with the number of jobs."""

    def runs_code(self, file: str, code: str) -> None:
        """Called before jobs run code of the user (a metric), once for each ``file`` that names a ``code``.

        ``file`` is the recipe or the project file; ``code`` is ``FILE.py:FUNCTION``.
        """

    def job_started(self, name: str) -> None:
        """Called when a job starts."""

    def job_progress(self, name: str, text: str) -> None:
        """Called with each line that a job writes about its progress, such as a finished step."""

    def job_ended(self, row: JobRecord) -> None:
        """Called when a job has ended, cannot begin, or is skipped because its result is known."""

    def job_removed(self, name: str, whole: bool) -> None:
        """Called after pruning a job that the file no longer names; ``whole``: its folder no longer exists."""


@dataclass(frozen=True)
class FleetRequest:
    """A fleet to run; attributes without a description are arguments of ``dmlprep.api.prepare_fleet``.

    Attributes:
        file, shard, only: for the record.
        jobs: the jobs to run, already chosen by ``shard`` and ``only``.
        base: the folder of the file.
        out: the output folder.
        engine: starts the engine that runs the jobs; it is called at the first job to run.
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
    """The result of a fleet: its record, and for each job, in the same order, a run record with only its findings."""

    record: FleetRecord
    findings: list[RunRecord]


def run_fleet(request: FleetRequest) -> Ran:
    """Run the jobs of a fleet; a job that fails does not end the others.

    Raises:
        UsageError: a recipe or a setting is wrong; it is raised before any job runs.
        OutputError: a folder cannot be written, or a result would overwrite a model.
        DmlprepError: ``request.engine`` raised it, such as CheckNotRun for a cluster that does not answer.
    """
    return _Run(request).run()


@dataclass
class _Active:
    """A job that was given to the engine: its key, its folder, the folder's earlier state, and its lock."""

    job: Job
    key: str
    place: Place
    before: State | None
    lock: contextlib.ExitStack


class _Run:
    """The state of one run of a fleet."""

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
            try:
                self._keys.plan(job)  # errors in recipes and settings come before anything runs
            except UsageError as error:
                error.where = ": ".join(filter(None, (job.name, error.where)))
                raise
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
        """Raise OutputError if a result would overwrite one of the models."""
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
        """Lock a job's folder, mark the job as begun, and return its task.

        ``None`` if its result is known, or if it cannot begin: its end is recorded already.
        """
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
        arguments = arguments_of(
            job, place.folder, self._record(job), self._keys.plan(job).target.name, fresh=self._request.fresh
        )
        return Task(job.name, arguments, job_memory(job), job, facts)

    def _announce(self, job: Job) -> None:
        """Tell the observer which code of the user the job runs because a file names it, once for each."""
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
        """Store the result of a job that ended, release its lock, and return its row."""
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
        """Return True if everything that the job depends on, data files included, is unchanged since it began."""
        try:
            same = all(self._digests.of(path) == sha for path, sha in result.data.items())
            return same and key_of(self._keys.facts(active.job)) == active.key
        except (OSError, UsageError):  # UsageError: a folder of feeds is no longer valid
            return False

    def _abandon(self) -> None:
        """Restore the folders of jobs that were stopped, and release their locks."""
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
    """Return, and create, the folder that a run locks while it works on a job; ``own`` is the fleet's state folder.

    Raises:
        OutputError: a link is in the way, or the folder cannot be made.
    """
    folder = own / "locks" / _short(name)
    check_no_links(own.parent, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, folder) from error
    return folder


def _short(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def arguments_of(job: Job, folder: Path, record: Path, target: str, *, fresh: bool = False) -> tuple[str, ...]:
    """Return the command line of a job, without the program.

    The job writes its results into ``folder``, and its record also to the file ``record``, even if it fails.
    ``target`` is the name of a release, never empty: the default might differ on the machine that runs the job.
    ``fresh``: the job ignores cached verdicts.
    """
    words = ["prepare", "-o", str(folder), "--no-project", "--force", "--recipe", job.recipe, "--target", target]
    for flag, values in (("--pin", job.pins), ("--set", job.settings)):
        for name, value in values.items():
            words += [flag, f"{name}={toml_value(value)}"]
    words += [word for name, value in job.options.items() for word in OPTIONS[name].words(name, value)]
    words += ["--fresh"] if fresh else []
    return (*words, "--record", str(record), "--html", str(folder / REPORT), "--", str(job.model))
