"""The passes: one module each. ``catalog`` names them."""

from dmlprep.passes.base import Bound, Context, Fact, Options, Pass
from dmlprep.passes.catalog import CATALOG, find_pass, make_pass

__all__ = ["CATALOG", "Bound", "Context", "Fact", "Options", "Pass", "find_pass", "make_pass"]
