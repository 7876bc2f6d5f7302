"""Values whose sizes follow from data: FP16 may select other elements, and then they cannot be compared one by one."""

from __future__ import annotations

from dmlprep.model import Model

__all__ = ["sized_by_data"]

_SELECTS = frozenset({"NonMaxSuppression", "NonZero", "Unique", "Compress"})


def sized_by_data(model: Model) -> frozenset[str]:
    """Names of the main graph's values that a selecting operator makes, or that follow from one; parity has rules for
    such outputs (sets of boxes)."""
    found: set[str] = set()
    for node in model.ir.graph:
        if node.op_type in _SELECTS or any(v is not None and v.name in found for v in node.inputs):
            found.update(v.name for v in node.outputs if v.name)
    return frozenset(found)
