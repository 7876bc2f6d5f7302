"""Forms of operators that DirectML accepts, but on which it fails or computes wrong results: one module for each.

In such a module, ``_matches`` returns why a node has the form, or ``""``. ``_rewrite`` replaces the node and returns
``""``, or changes no result and returns why it cannot replace the node. ``quirk.Quirk`` describes both.
"""

from dmlprep.directml.quirks.catalog import code_row, codes, quirks
from dmlprep.directml.quirks.find import Hit, Matches, concerned, find_quirks
from dmlprep.directml.quirks.quirk import Quirk

__all__ = ["Hit", "Matches", "Quirk", "code_row", "codes", "concerned", "find_quirks", "quirks"]
