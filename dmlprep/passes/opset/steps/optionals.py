"""Optional types: what is known to be there, or not, needs no optional."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.build import Builder
from dmlprep.passes.opset.steps import Steps


def has_element_18(b: Builder) -> list[ir.Value | None] | None:
    """The constant false without an input, true with a tensor or a sequence."""
    x = b.input(0)
    if x is None:
        return [b.const(np.array(False))]
    known = b.values.type(x)
    if known is None or known.WhichOneof("value") == "optional_type":
        return None
    return [b.const(np.array(True))]


def get_element_18(b: Builder) -> list[ir.Value | None] | None:
    """An Identity, where the input is a tensor or a sequence."""
    known = b.values.type(b.need(0))
    if known is None or known.WhichOneof("value") == "optional_type":
        return None
    return [b.op("Identity", b.need(0))]


STEPS: Steps = {
    ("OptionalHasElement", 18): has_element_18,
    ("OptionalGetElement", 18): get_element_18,
}
