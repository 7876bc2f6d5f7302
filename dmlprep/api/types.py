"""Types of arguments and results: for annotations, and to subclass the two observers."""

from dmlprep.arrays import Array
from dmlprep.covering import Cover, Sizes
from dmlprep.fleet import FleetObserver, Job
from dmlprep.model.pinned import Value
from dmlprep.parity.finding import Bisection
from dmlprep.parity.sources import Pictures
from dmlprep.pipeline import Observer
from dmlprep.pipeline.buckets import BucketRun
from dmlprep.placement.report import Examined
from dmlprep.project import Project
from dmlprep.recipe import Plan
from dmlprep.targets import Target

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
