"""Kernels that DirectML takes a node with, and that then fail or compute something else."""

from dmlprep.targets.quirks.find import Hit, Quirks, find_quirks
from dmlprep.targets.quirks.table import Quirk, quirks

__all__ = ["Hit", "Quirk", "Quirks", "find_quirks", "quirks"]
