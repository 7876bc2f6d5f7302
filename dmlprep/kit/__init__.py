"""Kits: a model, what it is fed and what is expected, with a runner, for a Windows machine without dmlprep.

``pack`` writes one, ``verify`` judges the result that came back, ``choose_candidate`` takes the best of several models
by it. See ``docs/kit.md``.
"""

from dmlprep.kit.choosing import ChooseRequest, choose_candidate
from dmlprep.kit.packing import KitRequest, Packed, pack
from dmlprep.kit.verifying import VerifyRequest, verify

__all__ = ["ChooseRequest", "KitRequest", "Packed", "VerifyRequest", "choose_candidate", "pack", "verify"]
