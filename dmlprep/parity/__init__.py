"""Parity: the original on the CPU against the prepared model on a device, on the user's feeds or on seeded ones."""

from dmlprep.parity.candidate import Candidate, adapt_feed, file_candidate, shadow_candidate
from dmlprep.parity.compare import compare, compare_candidate
from dmlprep.parity.feedfiles import feed_files
from dmlprep.parity.feeds import Feed, fit_feeds, fit_shapes, load_feeds, make_feeds, static_sizes
from dmlprep.parity.framed_feeds import feeds_of
from dmlprep.parity.optimization_levels import at_some_level, lower_levels
from dmlprep.parity.reference import Reference
from dmlprep.parity.run_feeds import RunFeeds
from dmlprep.parity.trial import Trial, not_run

__all__ = [
    "Candidate",
    "Feed",
    "Reference",
    "RunFeeds",
    "Trial",
    "adapt_feed",
    "at_some_level",
    "compare",
    "compare_candidate",
    "feed_files",
    "feeds_of",
    "file_candidate",
    "fit_feeds",
    "fit_shapes",
    "load_feeds",
    "lower_levels",
    "make_feeds",
    "not_run",
    "shadow_candidate",
    "static_sizes",
]
