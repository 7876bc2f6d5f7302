"""Prepare many models by one project file, with several recipes, targets and sizes of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from dmlprep.api.preparing import prepare, start_worker
from dmlprep.core.errors import DmlprepError, OutputError, UsageError
from dmlprep.core.files import user_path
from dmlprep.pipeline.options import PrepareKeywords, PrepareOptions
from dmlprep.record import RunRecord
from dmlprep.record.fleet import worst

if TYPE_CHECKING:
    from dmlprep.fleet import Engine, FleetObserver, Job
    from dmlprep.pipeline.observer import Observer
    from dmlprep.pipeline.project import Project
    from dmlprep.pipeline.project.beginning import Ask, Begun
    from dmlprep.record.fleet import FleetRecord


Build = Literal["cmake", "msbuild", "hatch", "github", "pre-commit"]


def init_project(
    *models: str | Path,
    out: str | Path = "dmlprep.toml",
    results: str = "build/models",
    ask: Ask | None = None,
    force: bool = False,
) -> Begun:
    """Write a project file for models, with a suitable recipe for each, and sizes for free dimensions.

    Models that an existing file lacks are added at its end; the rest of the file stays as it is.

    >>> begun = dmlprep.init_project("model.onnx")
    >>> [(model.path, model.recipe, model.sizes) for model in begun.models]
    [('model.onnx', '@vision-fp16', {'batch': 1})]

    Args:
        models: the models; by default all in the folder of the project file and below, except results of dmlprep,
            and the content of hidden folders, ``build`` and ``node_modules``.
        out, force: path of the project file (docs/project-file.md), and whether to replace it.
        results: the folder for prepared models that a new file names, relative to the file.
        ask: called with a model, a free dimension and an example of its size in elements; returns the size. Without
            ``ask`` the file has the examples, and ``guessed`` of a model names them, except ``batch = 1``.

    Returns:
        the suggested recipe and sizes of each model that was added (``models``), the models that the file had already
        (``present``), and those that cannot be read (``unreadable``). If no model can be read, no file is written.

    Raises:
        InputError: a model that was named cannot be read.
        ModelRefused, ToolFailed: such a model is not supported, exceeds a safety limit, or crashes onnx.
        OutputError: the file cannot be written.
        UsageError: there is no model, or there are too many; the name of a new file does not end in ``.toml``, or is
            ``pyproject.toml``; DP904, an existing file is wrong.
    """
    start_worker()
    from dmlprep.pipeline.project.beginning import begin_project

    return begin_project(
        [user_path(one) for one in models], user_path(out, OutputError), results=results, ask=ask, force=force
    )


def build_snippet(begun: Begun, build: Build) -> str:
    """Return the text to paste into a build system, so that it prepares the models at each build.

    The text for ``pre-commit`` checks models instead, at each commit.

    Args:
        begun: the result of ``init_project``.
        build: ``cmake``, ``msbuild``, ``hatch``, ``github`` or ``pre-commit`` (docs/build-systems.md).

    Raises:
        UsageError: the build system is unknown.
    """
    from dmlprep.pipeline.project.snippets import snippet

    return snippet(build, [*begun.present, *begun.models], begun.results)


def read_project(path: str | Path | None = None) -> Project | None:
    """Read a project file.

    Args:
        path: ``dmlprep.toml``, or a ``pyproject.toml`` with ``[tool.dmlprep]``; ``None``: the one that applies to the
            working folder.

    Returns:
        the project: ``defaults`` has options for all models, ``models`` the options by path or pattern. ``None`` if no
        path is passed and no file exists.

    Raises:
        UsageError: DP904, it cannot be read, belongs to another user, or has an unknown or ill-typed field.
    """
    from dmlprep.pipeline.project import find_project
    from dmlprep.pipeline.project import read_project as read

    file = user_path(path) if path is not None else find_project()
    return None if file is None else read(file)


def file_options(project: Project | None, model: Path, needed: Collection[str] = ()) -> dict[str, Any]:
    """Return the options of ``prepare`` that a project file sets for a model, by name; empty without a project.

    Args:
        needed: names of options that must not have several values in the file, such as ``recipe``, ``target`` and
            ``pins``. For other options with several, the result has the first recipe and target, and no sizes.

    Raises:
        UsageError: DP904, the file has several values for a needed option.
    """
    from dmlprep.pipeline.project import CODE, defaults_for

    if project is None:
        return {}
    defaults = defaults_for(project, model)
    for name, values in defaults.several.items():
        if name in needed:
            fix = f"choose one ({_CHOOSES[name]}), or prepare all of them: dmlprep fleet"
            what = f"{model} has several {_AXES[name]}: {', '.join(values)}"
            raise UsageError(what, where=project.file, fix=fix, code=CODE)
    return defaults.options


_AXES = {"recipe": "recipes", "target": "targets", "pins": "sizes"}
_CHOOSES = {"recipe": "--recipe NAME", "target": "--target NAME", "pins": "--pin DIM=SIZE"}


def completed(theirs: Mapping[str, Any], chosen: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Merge the options of the project file with those that the user chose.

    Args:
        theirs: options of the project file (``file_options``).
        chosen: options of the user, which override those of the file; ``pins`` and ``settings`` are merged by name.

    Returns:
        the merged options; and one line of text for the user about the options that come from the file, empty if none
        does.
    """
    from dmlprep.pipeline.project import add, in_words

    added = {name: value for name, value in theirs.items() if name not in chosen}
    both: dict[str, Any] = {**theirs, **chosen}
    for name in theirs.keys() & chosen.keys() & {"pins", "settings"}:
        added[name] = {one: value for one, value in theirs[name].items() if one not in chosen[name]}
        both[name] = add(theirs[name], chosen[name])
    return both, in_words(added)


def result_places(project: Project | None, models: Sequence[Path] = (), out: Path | None = None) -> dict[Path, Path]:
    """Return the folder or file where ``prepare`` writes the result of each model.

    Args:
        models: the models; empty: those in the project file.
        out: the folder that the user chose, which overrides the file. Each of several models gets a subfolder with
            its name. Without both, a result is in ``build/models/NAME`` next to the file, or in the working folder.

    Raises:
        UsageError: there is no model, or two models would get the same folder. Or a folder in the project file is
            outside the folder of that file, or ``out`` is one file for several models.
        OutputError: a link exists at the path of a model's folder in ``out``, or in the default ``build/models``.
    """
    from dmlprep.pipeline.project import own_models
    from dmlprep.pipeline.project import result_places as places

    return places(models or own_models(project) if project is not None else models, out, project)


@dataclass(frozen=True)
class ProjectRun:
    """The result of ``prepare_project``: ``records`` by model, and ``errors`` by model for those without a record."""

    records: dict[Path, RunRecord] = field(default_factory=dict)
    errors: dict[Path, DmlprepError] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The worst exit code of all models, in the order 70, 2, 1, 3, 0."""
        codes = [record.exit_code for record in self.records.values()]
        return worst([*codes, *(error.exit_code for error in self.errors.values())])


def prepare_project(
    project: str | Path | None = None,
    *,
    models: Sequence[str | Path] = (),
    out: str | Path | None = None,
    observer: Observer | None = None,
    **options: Unpack[PrepareKeywords],
) -> ProjectRun:
    """Run ``prepare`` for the models of a project file, with the options in the file.

    >>> run = dmlprep.prepare_project("dmlprep.toml", force=True)
    >>> run.exit_code
    0

    Args:
        project: the project file, as in ``read_project``.
        models: prepare only these models, even if the file does not name them; empty: all models of the file.
        out: folder of the results, which overrides the file; each of several models gets a subfolder with its name.
        observer: as in ``prepare``.
        options: further options of ``prepare``, which override the file; ``pins`` and ``settings`` are merged by name.

    Returns:
        the record of each model. An error of one model does not stop the others: it is in ``errors``.

    Raises:
        UsageError: there is no project file, it is wrong, or no model in it exists.
        TypeError: ``prepare`` has no such option.
    """
    PrepareOptions(**options)  # their own faults, before the file's options are added
    config = _project(project)
    done = ProjectRun()
    chosen = {name: {} if value is None and name in ("pins", "settings") else value for name, value in options.items()}
    folder = user_path(out, OutputError) if out is not None else None
    for model, place in result_places(config, [*map(user_path, models)], folder).items():
        try:
            theirs = file_options(config, model, PrepareKeywords.__optional_keys__ - {*chosen})
            both, _ = completed(theirs, chosen)
            done.records[model] = prepare(model, out=place, observer=observer, **both)
        except DmlprepError as error:
            done.errors[model] = error
    return done


def _project(file: str | Path | None) -> Project:
    """Return the project file, as ``read_project`` does.

    Raises:
        UsageError: there is none.
    """
    project = read_project(file)
    if project is None:
        what, where = "no project file", str(Path.cwd())
        raise UsageError(what, where=where, fix="dmlprep init (dmlprep.init_project in Python) writes one")
    return project


def plan_fleet(file: str | Path | None = None, *, only: Sequence[str] = (), shard: str = "") -> list[Job]:
    """Return the jobs of a project file: each model with each of its recipes, targets and sizes. Nothing runs.

    Args:
        file: the project file (docs/fleet.md), as in ``read_project``.
        only: names of jobs, beginnings of names, patterns, or paths of models; empty: all jobs.
        shard: one part of the jobs, such as ``3/8`` for the third of eight; empty: all.

    Returns:
        the jobs in the order of the file, each with its model, recipe, target and pins.

    Raises:
        UsageError: there is no file, or it is wrong (DP904); or no job matches ``only``, or ``shard`` is not valid.
    """
    from dmlprep.fleet import jobs_of, read_shard, selected, sharded

    return sharded(selected(jobs_of(_project(file)), only), read_shard(shard))


def job_memory(job: Job) -> int:
    """Return an estimate of the system memory that a job of a fleet needs, in bytes, from the size of its model."""
    from dmlprep.fleet import job_memory as needed

    return needed(job)


def fleet_folder(file: str | Path | None = None) -> Path:
    """Return the folder for all results of a project file; ``build/models`` next to it if the file sets none."""
    return _project(file).out


def prepare_fleet(
    file: str | Path | None = None,
    *,
    out: str | Path | None = None,
    jobs: int | None = None,
    only: Sequence[str] = (),
    shard: str = "",
    fresh: bool = False,
    force: bool = False,
    scheduler: str = "",
    prune: bool = False,
    observer: FleetObserver | None = None,
) -> FleetRecord:
    """Prepare all models of a project file, each job in its own process. Finished jobs run again only after a change.

    Args:
        file, only, shard: as in ``plan_fleet``.
        out: folder of all results; by default the one in the file. It also gets ``fleet.json``, an index, a table in
            Markdown, SARIF and JUnit XML.
        jobs: number of parallel jobs; by default one for each processor, or fewer if memory is short. It cannot be
            combined with ``scheduler``.
        fresh: True to run every job again, and to measure on DirectML again.
        force: True to replace files in ``out`` that no fleet run wrote.
        scheduler: address of a Dask scheduler whose workers run the jobs; they need access to the same folders.
        prune: True to remove the results of jobs that are no longer in the file, after the run.
        observer: notified when a job starts, makes progress and ends.

    Returns:
        a row for each job; ``exit_code`` is the worst of all jobs, in the order 70, 2, 1, 3, 0.

    Raises:
        UsageError: as in ``plan_fleet``; ``prune`` is combined with ``only`` or ``shard``; a recipe, setting, target or
            pin is wrong, or ``out`` cannot be written. Nothing has run then.
        OutputError: a report cannot be written, or ``prune`` cannot remove a file.
        CheckNotRun: no scheduler answers, or it has no worker.
    """
    from dmlprep.fleet import (
        STATE_FOLDER,
        FleetObserver,
        FleetRequest,
        jobs_of,
        read_shard,
        selected,
        sharded,
    )
    from dmlprep.fleet import prune as remove_gone
    from dmlprep.fleet import run_fleet as run
    from dmlprep.report.fleet_files import check_reports, write_reports

    if prune and (only or shard):
        fix = "run it again with prune alone"
        raise UsageError("prune needs all jobs of the file", where="prune", fix=fix)
    project = _project(file)
    folder = user_path(out, OutputError) if out is not None else project.out
    part = read_shard(shard)
    check_reports(folder, str(part), STATE_FOLDER, force=force)
    every = jobs_of(project)
    planned = sharded(selected(every, only), part)
    engine = _engine(scheduler, jobs)
    if scheduler:
        # Workers have another working folder.
        folder = folder.absolute()
        planned = [replace(job, model=job.model.absolute()) for job in planned]
    named, here = Path(project.file), Path.cwd()
    request = FleetRequest(
        file=str(named.relative_to(here) if named.is_relative_to(here) else named),
        base=project.folder,
        out=folder,
        jobs=planned,
        engine=engine,
        shard=part,
        only=only,
        fresh=fresh,
        force=force,
        observer=observer or FleetObserver(),
    )
    ran = run(request)
    write_reports(folder, ran.record, ran.findings)
    if prune:
        remove_gone(folder, [job.name for job in every], request.observer)
    return ran.record


def _engine(scheduler: str, jobs: int | None) -> Callable[[], Engine]:
    """Return a function that starts the engine, which runs the jobs: on this machine, or on a Dask cluster.

    Raises:
        UsageError: both a scheduler and a number of jobs are set.
    """
    if not scheduler:
        from dmlprep.fleet import LocalEngine, room

        return partial(LocalEngine, room(jobs))
    if jobs is not None:
        raise UsageError("--jobs does not work with a scheduler", fix="remove one of the two")

    def cluster() -> Engine:
        from dmlprep.fleet.cluster import ClusterEngine  # Dask is imported where there are jobs to run

        return ClusterEngine(scheduler)

    return cluster


def gone_fleet_jobs(file: str | Path | None = None, *, out: str | Path | None = None) -> list[str]:
    """Return the jobs that are no longer in the project file but have results: those that ``prune`` would remove.

    Args:
        file, out: as in ``prepare_fleet``.

    Returns:
        the names of the jobs, in alphabetical order; empty if there are none, or no fleet has run.

    Raises:
        UsageError: there is no project file, or it is wrong.
        OutputError: the folder cannot be read.
    """
    from dmlprep.fleet import gone_jobs, jobs_of

    project = _project(file)
    return gone_jobs(
        user_path(out, OutputError) if out is not None else project.out, [job.name for job in jobs_of(project)]
    )
