"""Kits: a model with feeds, expected outputs and a runner, for a Windows machine without dmlprep.

``pack`` writes a kit. ``verify`` judges the result that comes back from the Windows machine. ``choose_candidate`` picks
the best of several models from such a result. See ``docs/kit.md``.
"""

from dmlprep.kit.choosing import choose_candidate
from dmlprep.kit.packing import KitRequest, Packed, pack
from dmlprep.kit.verifying import verify

__all__ = ["KitRequest", "Packed", "choose_candidate", "pack", "verify"]
