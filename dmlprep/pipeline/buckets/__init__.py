"""Which few sizes cover all that an app sees: read from a log, and chosen so that little is padded."""

from dmlprep.pipeline.buckets.cover import Bucket, Cover, cover, cover_within
from dmlprep.pipeline.buckets.log import Sizes, read_log

__all__ = ["Bucket", "Cover", "Sizes", "cover", "cover_within", "read_log"]
