"""Fused operators: find nodes that one operator of com.microsoft can replace, fuse them, and expand it again."""

from dmlprep.passes.fusions.form import Form, Match
from dmlprep.passes.fusions.long_sums import LONG, with_short_sums
from dmlprep.passes.fusions.writing_out import Written, write_out

__all__ = ["LONG", "Form", "Match", "Written", "with_short_sums", "write_out"]
