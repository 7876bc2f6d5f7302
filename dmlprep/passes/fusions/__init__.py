"""Operators of com.microsoft that stand for several nodes: how the nodes are found, written as one, and written out."""

from dmlprep.passes.fusions.form import Form, Match
from dmlprep.passes.fusions.writing_out import Written, write_out

__all__ = ["Form", "Match", "Written", "write_out"]
