"""Kits: a model, what it is fed and what is expected, with a runner, for a Windows machine without dmlprep.

``pack`` writes one, ``verify`` judges the result that came back. See ``docs/kit.md``.
"""

from dmlprep.kit.packing import KitRequest, Packed, pack
from dmlprep.kit.verifying import VerifyRequest, verify

__all__ = ["KitRequest", "Packed", "VerifyRequest", "pack", "verify"]
