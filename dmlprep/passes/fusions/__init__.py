"""Fused operators: find nodes that one operator of com.microsoft can replace, fuse them, and expand it again."""

from dmlprep.passes.fusions.form import Form, Match
from dmlprep.passes.fusions.writing_out import Written, write_out

__all__ = ["Form", "Match", "Written", "write_out"]
