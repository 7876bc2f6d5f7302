"""Choose a few buckets (sets of sizes) that cover all requests in an app's log, with little padding."""

from dmlprep.pipeline.buckets.cover import Bucket, Cover, cover, cover_within
from dmlprep.pipeline.buckets.log import Sizes, read_log

__all__ = ["Bucket", "Cover", "Sizes", "cover", "cover_within", "read_log"]
