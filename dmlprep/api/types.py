"""Types of arguments and results, for annotations; ``Observer`` and ``FleetObserver`` are base classes to subclass."""

from dmlprep.directml.placement.report import Examined
from dmlprep.directml.targets import Target
from dmlprep.fleet import FleetObserver, Job
from dmlprep.graph.model.pinned import Value
from dmlprep.parity.bisection.finding import Bisection
from dmlprep.parity.feeds.sources import Pictures
from dmlprep.pipeline.buckets import Cover, Sizes
from dmlprep.pipeline.buckets.preparing import BucketRun
from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.project import Project
from dmlprep.pipeline.recipe import Plan
from dmlprep.portable.arrays import Array

__all__ = [
    "Array",
    "Bisection",
    "BucketRun",
    "Cover",
    "Examined",
    "FleetObserver",
    "Job",
    "Observer",
    "Pictures",
    "Plan",
    "Project",
    "Sizes",
    "Target",
    "Value",
]
