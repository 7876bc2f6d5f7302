"""FP32 for bfloat16 and FP64: DirectML has no kernel for the one, and few for the other."""

from __future__ import annotations

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.metrics import holds_rare_floats
from dmlprep.passes.base import Context
from dmlprep.passes.precision.convert.converter import convert


def to_single(model: Model, context: Context) -> bool:
    """Compute bfloat16 and FP64 in FP32, where a compute node is on the CPU; inputs and outputs keep their types.

    Raises:
        ModelRefused: the result would be invalid (DP403).
    """
    if not holds_rare_floats(model) or (context.on_cpu is not None and not context.on_cpu(model, context.before)):
        return False
    keep = dict.fromkeys(map(id, nodes(model.ir)), "computes in FP32")
    if not convert(model, context.target, level="fast", keep=keep).changed:
        return False
    context.report("DP105", "bfloat16 and FP64 are computed in FP32: DirectML lacks kernels for them")
    return True
