"""Forms of operators that DirectML accepts, but on which it fails or computes wrong results: one module for each."""

from dmlprep.directml.quirks.catalog import code_row, codes, quirks
from dmlprep.directml.quirks.find import Hit, Matches, concerned, find_quirks
from dmlprep.directml.quirks.quirk import Quirk

__all__ = ["Hit", "Matches", "Quirk", "code_row", "codes", "concerned", "find_quirks", "quirks"]
