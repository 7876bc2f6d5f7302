"""What stays dynamic after pinning, and why."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import is_static
from dmlprep.graph.analysis.known import Known
from dmlprep.graph.model.walk import label, main_graphs
from dmlprep.passes.base import Context
from dmlprep.passes.pin.sizes import input_dims

_DATA_DEPENDENT = {
    "NonMaxSuppression": "how many boxes it selects depends on the scores",
    "NonZero": "how many elements are not zero depends on the data",
    "Unique": "how many values are different depends on the data",
    "Compress": "how many elements are kept depends on the condition",
    "TopK": "its k is computed from data",
    "Resize": "its sizes or scales are computed from data",
    "Upsample": "its scales are computed from data",
    "Tile": "its repeats are computed from data",
    "Pad": "its pads are computed from data",
    "If": "its branches give different shapes",
    "Loop": "a size grows from round to round, or the number of rounds depends on the data",
    "Scan": "its body gives a dynamic shape",
    "OneHot": "its depth is computed from data",
    "Split": "its sizes are computed from data",
    "SequenceAt": "a sequence's elements may differ in shape",
    "StringSplit": "how many parts there are depends on the data",
    "DFT": "its length is computed from data",
    **dict.fromkeys(("ConstantOfShape", "Expand", "Reshape", "CenterCropPad"), "its shape is computed from data"),
    **dict.fromkeys(("Range", "Slice"), "its bounds are computed from data"),
    **dict.fromkeys(("BlackmanWindow", "HannWindow", "HammingWindow"), "its size is computed from data"),
    **dict.fromkeys(
        ("SplitToSequence", "ConcatFromSequence", "SequenceConstruct", "SequenceEmpty"), "a sequence has no size"
    ),
}
_MOST = 20


def report(model: ir.Model, known: Known, context: Context) -> list[str]:
    """Report and return each cause of a dynamic shape (DP201): free inputs, and nodes that make one of static ones."""
    places: dict[str, list[str]] = {}
    for dims in input_dims(model.graph).values():
        for dim in dims or ():
            if dim.size is None:
                places.setdefault(dim.name or dim.key, []).append(dim.key)
    causes = [f"input dimension {name} ({_listed(keys)}) is free" for name, keys in places.items()]
    causes += [f"input {name} has no known rank" for name, dims in input_dims(model.graph).items() if dims is None]
    for sentence in causes:
        context.report("DP201", sentence)
    roots: list[tuple[str, str]] = []
    from_free = _from_free_sizes(model, known)
    for graph in main_graphs(model):
        for node in graph:
            if any(v in from_free for v in node.inputs):
                continue  # the cause is the free dimension, reported above
            read = [v for v in node.outputs if v.uses() or v.is_graph_output()]
            if all(_static(v, known) for v in read) or any(v and not _static(v, known) for v in node.inputs):
                continue
            roots.append((label(node), f"{node.op_type} {label(node)}: {_why(node, model, known)}"))
    for name, sentence in roots[:_MOST]:
        context.report("DP201", sentence, node=name)
    if len(roots) > _MOST:
        context.report("DP201", f"{len(roots) - _MOST} more nodes give dynamic shapes", count=len(roots))
    return causes + [sentence for _, sentence in roots]


def _listed(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _from_free_sizes(model: ir.Model, known: Known) -> set[ir.Value | None]:
    """Values computed from the size of a dimension that is free."""
    found: set[ir.Value | None] = set()
    for graph in main_graphs(model):
        for node in graph:
            reads_free = node.op_type in ("Shape", "Size") and not all(_static(v, known) for v in node.inputs if v)
            if reads_free or any(v in found for v in node.inputs):
                found.update(v for v in node.outputs if v not in known.constants)
    return found


def _static(value: ir.Value, known: Known) -> bool:
    return value in known.constants or is_static(known.dims(value))


def _why(node: ir.Node, model: ir.Model, known: Known) -> str:
    if (node.domain, node.op_type, node.overload) in model.functions:
        return "the function gives a dynamic shape"
    if node.domain not in ("", "ai.onnx"):
        return f"onnx has no shape rule for an operator of domain {node.domain}"
    return _DATA_DEPENDENT.get(node.op_type, "onnx's rule for this operator gives no static shape")
