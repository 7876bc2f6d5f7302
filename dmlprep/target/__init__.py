"""What one DirectML release can run."""

from dmlprep.target.target import Target, find_target, target_names

__all__ = ["Target", "find_target", "target_names"]
