"""Fleets: many models at many sizes, for many targets, from one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dmlprep.errors import UsageError

if TYPE_CHECKING:
    from dmlprep.fleet import Engine, FleetFile, FleetObserver, Job
    from dmlprep.record.fleet import FleetRecord

__all__ = ["gone_fleet_jobs", "plan_fleet", "prepare_fleet"]


def plan_fleet(file: str | Path = "fleet.toml", *, only: Sequence[str] = (), shard: str = "") -> list[Job]:
    """The jobs of a fleet: every model with each of its recipes, targets and sizes (docs/fleet.md). Nothing is run.

    Args:
        file: the fleet's.
        only: patterns of jobs; all where there is none.
        shard: a part of them, such as ``3/8``.

    Returns:
        the jobs in the order of the file, each with its model, recipe, target and pins.

    Raises:
        UsageError: DP905, the file is wrong; or nothing is called as ``only`` says, or ``shard`` is no part.
    """
    from dmlprep.fleet import jobs_of, read_fleet, read_shard, selected, sharded

    return sharded(selected(jobs_of(read_fleet(Path(file))), only), read_shard(shard))


def prepare_fleet(
    file: str | Path = "fleet.toml",
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
    """Prepare many models, each in a process of its own. What was done before, and still holds, is not done again.

    Args:
        file: the fleet's (docs/fleet.md).
        out: folder of all results; the file's where there is none. It also gets ``fleet.json``, an index, a table
            in Markdown, SARIF and JUnit XML.
        jobs: at once; as many as there are processors where there is none. Memory may allow fewer.
        only, shard: as in ``plan_fleet``.
        fresh: do everything again, and measure on DirectML anew.
        force: replace files that no fleet wrote.
        scheduler: address of a Dask scheduler whose workers run the jobs; they see the same folders. This machine where
            there is none.
        prune: afterwards remove what earlier runs wrote for jobs that the file no longer names.
        observer: told of each job as it starts, goes on and ends.

    Returns:
        a row a job; ``exit_code`` is the worst of them: 70, 2, 1, 3, 0.

    Raises:
        UsageError: as ``plan_fleet``; or ``prune`` is given with ``only`` or ``shard``; or a recipe, setting, target or
            pin is wrong, or ``out`` cannot be written. Nothing has run then.
        OutputError: a report cannot be written, or what ``prune`` is to remove cannot be removed.
        CheckNotRun: no scheduler answers, or it has no worker.
    """
    from dmlprep.fleet import (
        STATE_FOLDER,
        FleetObserver,
        FleetRequest,
        LocalEngine,
        jobs_of,
        read_fleet,
        read_shard,
        room,
    )
    from dmlprep.fleet import prune as remove_gone
    from dmlprep.fleet import run_fleet as run
    from dmlprep.report.fleet_files import check_reports, write_reports

    if prune and (only or shard):
        fix = "run it once more with prune alone"
        raise UsageError("prune is for all jobs of the file, not for some of them", where="prune", fix=fix)
    read = read_fleet(Path(file))
    folder = _folder(read, out)
    part = read_shard(shard)
    check_reports(folder, str(part), STATE_FOLDER, force=force)
    planned = plan_fleet(file, only=only, shard=shard)
    if scheduler:
        if jobs is not None:
            raise UsageError("--jobs is of this machine, and the workers run the jobs", fix="leave one of the two out")
        # Workers have another working folder.
        folder = folder.absolute()
        planned = [replace(job, model=job.model.absolute()) for job in planned]
    space = room(jobs)
    request = FleetRequest(
        file=str(file),
        base=read.folder,
        out=folder,
        jobs=planned,
        engine=lambda: _cluster(scheduler) if scheduler else LocalEngine(space),
        shard=part,
        only=only,
        fresh=fresh,
        force=force,
        observer=observer or FleetObserver(),
    )
    ran = run(request)
    write_reports(folder, ran.record, ran.findings)
    if prune:
        remove_gone(folder, [job.name for job in jobs_of(read)], request.observer)
    return ran.record


def _cluster(scheduler: str) -> Engine:
    from dmlprep.fleet.cluster import ClusterEngine

    return ClusterEngine(scheduler)


def gone_fleet_jobs(file: str | Path = "fleet.toml", *, out: str | Path | None = None) -> list[str]:
    """Jobs that earlier runs left a folder of, and that the file no longer names: what ``prune`` removes.

    Args:
        file: the fleet's.
        out: folder of all results; the file's where there is none.

    Returns:
        their names, in alphabetical order.

    Raises:
        UsageError: as ``plan_fleet``; or nothing says where the results are.
        OutputError: the folder cannot be read.
    """
    from dmlprep.fleet import gone_jobs, jobs_of, read_fleet

    read = read_fleet(Path(file))
    return gone_jobs(_folder(read, out), [job.name for job in jobs_of(read)])


def _folder(read: FleetFile, out: str | Path | None) -> Path:
    """Of all results."""
    folder = Path(out) if out is not None else read.out
    if folder is None:
        fix = "write out under [defaults], or give it"
        raise UsageError("nothing says where the results go", where=read.file, fix=fix, code="DP905")
    return folder
