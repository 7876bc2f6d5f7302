"""Operators whose number of rows depends on values, and what follows from them."""

from __future__ import annotations

from dmlprep.graph.model import Model

DATA_DEPENDENT = frozenset({"NonMaxSuppression", "NonZero", "Unique", "Compress"})
"""Operators whose number of rows depends on values."""


def data_dependent(model: Model) -> frozenset[str]:
    """Names of the main graph's values that such an operator makes, or that follow from one.

    FP16 may select other rows than FP32, so these values cannot be compared element by element.
    """
    found: set[str] = set()
    for node in model.ir.graph:
        if node.op_type in DATA_DEPENDENT or any(v is not None and v.name in found for v in node.inputs):
            found.update(v.name for v in node.outputs if v.name)
    return frozenset(found)
