"""Operators of com.microsoft that replace several nodes: how to find the nodes, fuse them, and expand them again."""

from dmlprep.passes.fusions.form import Form, Match
from dmlprep.passes.fusions.writing_out import Written, write_out

__all__ = ["Form", "Match", "Written", "write_out"]
