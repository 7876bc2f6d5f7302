"""Compare, bisect or time models on the same feeds: an original (reference) and a prepared model (candidate)."""

from dmlprep.parity.candidate import Candidate, adapt_feed, emulation_candidate, file_candidate
from dmlprep.parity.compare import compare
from dmlprep.parity.feeds.files import feed_files, load_feeds
from dmlprep.parity.feeds.framed_feeds import feeds_of
from dmlprep.parity.feeds.graph_feeds import Feed, fit_feeds, make_feeds
from dmlprep.parity.feeds.run_feeds import RunFeeds, sizes_text
from dmlprep.parity.optimization_levels import at_some_level, lower_levels
from dmlprep.parity.reference import Reference
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
    "emulation_candidate",
    "feed_files",
    "feeds_of",
    "file_candidate",
    "fit_feeds",
    "load_feeds",
    "lower_levels",
    "make_feeds",
    "not_run",
    "sizes_text",
]
