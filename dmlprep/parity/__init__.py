"""Parity: the original on the CPU against the prepared model on a device, on the user's feeds or on seeded ones."""

from dmlprep.parity.compare import compare
from dmlprep.parity.feeds import Feed, fit_feeds, load_feeds, make_feeds, static_sizes
from dmlprep.parity.metrics import measure
from dmlprep.parity.reference import Reference
from dmlprep.parity.tolerances import TOLERANCES, Tolerance, choose_tolerance, find_tolerance

__all__ = [
    "TOLERANCES",
    "Feed",
    "Reference",
    "Tolerance",
    "choose_tolerance",
    "compare",
    "find_tolerance",
    "fit_feeds",
    "load_feeds",
    "make_feeds",
    "measure",
    "static_sizes",
]
