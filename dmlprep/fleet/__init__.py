"""Prepare many models at many sizes, for many targets, with many recipes: one file, one command, one table.

A job prepares one model with one recipe, for one target, at one set of sizes. ``matrix`` makes the list of jobs
of a project file. ``keys`` and ``places`` find those that are done, and ``run`` passes the rest to an ``engine``, such
as ``local``.
"""

from dmlprep.fleet.engine import Ended, Engine, Started, Task
from dmlprep.fleet.local import LocalEngine
from dmlprep.fleet.matrix import Job, jobs_of, read_shard, selected, sharded
from dmlprep.fleet.needs import job_memory, room
from dmlprep.fleet.pruning import gone_jobs, prune
from dmlprep.fleet.run import STATE_FOLDER, FleetObserver, FleetRequest, Ran, run_fleet

__all__ = [
    "STATE_FOLDER",
    "Ended",
    "Engine",
    "FleetObserver",
    "FleetRequest",
    "Job",
    "LocalEngine",
    "Ran",
    "Started",
    "Task",
    "gone_jobs",
    "job_memory",
    "jobs_of",
    "prune",
    "read_shard",
    "room",
    "run_fleet",
    "selected",
    "sharded",
]
