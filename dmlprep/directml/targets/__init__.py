"""The releases of DirectML, and their capabilities. ``support`` has the rules for nodes, ``facts`` the nodes."""

from dmlprep.directml.targets.target import Target, find_target, latest_target, target_names

__all__ = ["Target", "find_target", "latest_target", "target_names"]
