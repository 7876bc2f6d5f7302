"""Attention with a mask and an attention bias: DirectML gives wrong numbers. The rewrite adds the mask to the bias."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_MASK, _BIAS = 3, 5


def _matches(node: NodeFacts) -> str:
    both = node.input(_MASK) is not None and node.input(_BIAS) is not None
    return "it has a mask and a bias" if both else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Add the mask's value to the bias where the mask is 0."""
    mask, bias = facts.required(_MASK), facts.required(_BIAS)
    if not mask.static or mask.rank not in (2, 3) or bias.dtype is None:
        return "its mask is not known to have one number for each key"
    batch, *rows = mask.sizes
    shape = [batch, 1, *([1] if mask.rank == 2 else []), *rows]
    kind, whole = bias.dtype, ir.DataType.INT32
    laid = edit.before("Reshape", [edit.input(_MASK), edit.integers(shape, "mask_shape")], dtype=whole, shape=shape)
    seen = edit.before(
        "Greater", [laid, edit.constant(np.array(0, np.int32), "none")], dtype=ir.DataType.BOOL, shape=shape
    )
    lowest = float(facts.attribute("mask_filter_value", -10000.0))
    values = [edit.constant(np.array(number, kind.numpy()), name) for number, name in ((0, "zero"), (lowest, "value"))]
    hidden = edit.before("Where", [seen, *values], dtype=kind, shape=shape)
    edit.set_input(_BIAS, edit.before("Add", [edit.input(_BIAS), hidden], dtype=kind))
    edit.set_input(_MASK, None)
    return ""


QUIRK = Quirk(
    id="attention-masked-bias",
    code="DP678",
    title="Attention with a mask and an attention bias",
    ops=("com.microsoft::Attention",),
    outcome="wrong numbers",
    sources=("measured on 1.24.4 and 1.30.0 by tests/benchmarks/contrib_forms.py: .4 of the largest value off",),
    matches=_matches,
    rewrite=_rewrite,
)
