"""The passes: each step of a recipe runs a pass, which changes a model and reports the changes."""

from dmlprep.passes.base import AnyPass, Bound, Context, Fact, OnCpu, Options, Pass
from dmlprep.passes.catalog import CATALOG, find_pass, make_pass

__all__ = ["CATALOG", "AnyPass", "Bound", "Context", "Fact", "OnCpu", "Options", "Pass", "find_pass", "make_pass"]
