"""Parity: the original on the CPU against the prepared model on a device, on the user's feeds or on seeded ones."""

from dmlprep.parity.candidate import Candidate, adapt_feed, file_candidate, shadow_candidate
from dmlprep.parity.compare import compare, compare_candidate, not_run
from dmlprep.parity.feeds import Feed, fit_feeds, fit_shapes, load_feeds, make_feeds, static_sizes
from dmlprep.parity.levels import at_some_level, lower_levels
from dmlprep.parity.metrics import measure, tells_something
from dmlprep.parity.reference import Reference
from dmlprep.parity.tolerances import TOLERANCES, Tolerance, choose_tolerance, find_tolerance
from dmlprep.parity.traits import holds_fp16, holds_rare_floats

__all__ = [
    "TOLERANCES",
    "Candidate",
    "Feed",
    "Reference",
    "Tolerance",
    "adapt_feed",
    "at_some_level",
    "choose_tolerance",
    "compare",
    "compare_candidate",
    "file_candidate",
    "find_tolerance",
    "fit_feeds",
    "fit_shapes",
    "holds_fp16",
    "holds_rare_floats",
    "load_feeds",
    "lower_levels",
    "make_feeds",
    "measure",
    "not_run",
    "shadow_candidate",
    "static_sizes",
    "tells_something",
]
