"""What one DirectML release can run."""

from dmlprep.target.support import Support
from dmlprep.target.target import Target, find_target, target_names

__all__ = ["Support", "Target", "find_target", "target_names"]
