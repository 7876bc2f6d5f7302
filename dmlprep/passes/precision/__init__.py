"""FP16: which nodes to convert, how to convert them, and an emulation of FP16 hardware (docs/precision.md).

The caller passes an object that runs models (``passes.base.Runner``); this package opens no session of ONNX Runtime.
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
