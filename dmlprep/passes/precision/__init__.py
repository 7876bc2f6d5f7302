"""FP16: what to convert, how to convert it, and proof of what FP16 hardware would make of it.

* ``convert(model, target, level=..., keep_io=..., keep=..., convert_anyway=...)`` converts a model in place.
* ``emulate(model, mode, rounding)`` makes the FP16 emulation of a converted model: an FP32 model that
  rounds to FP16 after every node, with the same input and output names, to be run on any machine.
* ``profile(model, runner, feeds)`` measures the range of every floating value in an FP32 run.
* ``find_islands(model, convert, runner, feeds, setting)`` searches for the smallest set of nodes to keep in FP32.
* ``RULES`` are the policy: each says which nodes stay in FP32, and why.

What runs a model is handed in (``passes.base.Runner``); nothing here opens a session. See ``docs/precision.md``.
"""

from dmlprep.passes.precision.convert.converter import convert
from dmlprep.passes.precision.emulation.emulate import Accumulation, Rounding, emulate
from dmlprep.passes.precision.fp16 import FP16_MAX, CastTensor, cast_tensor, measure
from dmlprep.passes.precision.policy.rules import LEVELS, RULES
from dmlprep.passes.precision.search.islands import Setting, find_islands
from dmlprep.passes.precision.search.profile import profile
from dmlprep.passes.precision.user_selection import Selection, select

__all__ = [
    "FP16_MAX",
    "LEVELS",
    "RULES",
    "Accumulation",
    "CastTensor",
    "Rounding",
    "Selection",
    "Setting",
    "cast_tensor",
    "convert",
    "emulate",
    "find_islands",
    "measure",
    "profile",
    "select",
]
