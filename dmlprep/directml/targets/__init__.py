"""What one DirectML release can run. The rules for nodes are in ``support``, the values they read in ``facts``."""

from dmlprep.directml.targets.target import Target, find_target, latest_target, target_names

__all__ = ["Target", "find_target", "latest_target", "target_names"]
