"""The passes: one module each. ``catalog`` names them."""

from dmlprep.passes.base import Bound, Context, Fact, Options, Pass, Runner
from dmlprep.passes.catalog import CATALOG, find_pass, make_pass

__all__ = ["CATALOG", "Bound", "Context", "Fact", "Options", "Pass", "Runner", "find_pass", "make_pass"]
