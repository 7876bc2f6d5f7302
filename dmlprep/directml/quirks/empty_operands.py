"""Reductions of no elements, matrix products with an inner size of 0, and outputs without elements."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import DML_PROVIDER, MEASURED, Edit, NodeFacts, Quirk

_NEUTRAL = {
    **dict.fromkeys(("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2"), 0.0),
    "ReduceProd": 1.0,
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp"), -np.inf),
}


def _matches(node: NodeFacts) -> str:
    x, out = node.input(0), node.output()
    if x is None or out is None or x.size != 0 or out.size == 0:
        return ""
    return f"{x.name} of shape {list(x.shape or ())} is empty, the result is not"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Replace the reduction by a constant: its neutral element, if ONNX defines one."""
    out = facts.output()
    if facts.op not in _NEUTRAL:
        return f"{facts.op} of an empty tensor is not defined"
    if out is None or not out.static or not out.type:
        return "the sizes of its output are unknown"
    dtype = out.numpy_type
    if not np.isfinite(_NEUTRAL[facts.op]) and dtype.kind not in "f":
        return "the result would be minus infinity, which an integer type does not have"
    edit.room(out.sizes, dtype.itemsize, "what it computes")
    return edit.become(edit.constant(np.full(out.sizes, _NEUTRAL[facts.op], dtype), "neutral"))


QUIRK = Quirk(
    id="empty-reduction",
    code="DP624",
    title="reduction of an empty tensor",
    ops=(
        "ReduceSum",
        "ReduceProd",
        "ReduceMax",
        "ReduceMin",
        "ReduceMean",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceSumSquare",
    ),
    outcome="wrong numbers",
    sources=(MEASURED, "onnx_backend_test_series_filters.jsonc (reduce_*_empty_set)"),
    matches=_matches,
    rewrite=_rewrite,
)


def _matches_product(node: NodeFacts) -> str:
    a, out = node.input(0), node.output()
    return (
        f"{a.name} is empty, the product is not"
        if a is not None and out is not None and a.size == 0 and out.size != 0
        else ""
    )


def _rewrite_product(facts: NodeFacts, edit: Edit) -> str:
    """Replace the product by a constant of zeros."""
    out = facts.output()
    if out is None or not out.type or not out.static:
        return "the sizes of its output are unknown"
    if facts.op == "Gemm" and facts.input(2) is not None:
        return "it also adds C, the third input of Gemm"
    edit.room(out.sizes, out.numpy_type.itemsize, "the zeros that it computes")
    return edit.become(edit.constant(np.zeros(out.sizes, out.numpy_type), "zeros"))


QUIRK_PRODUCT = Quirk(
    id="empty-product",
    code="DP625",
    title="matrix product with an inner size of 0",
    ops=("MatMul", "Gemm"),
    outcome="wrong numbers",
    matches=_matches_product,
    rewrite=_rewrite_product,
)


def _matches_output(node: NodeFacts) -> str:
    """The reason, if an output of the node is an empty output of the model; empty otherwise.

    At such an output, the provider stops copying outputs to the CPU. Outputs that are empty or constant need no copy.
    """
    empty = [v.name for v in node.outputs if v is not None and v.graph_output and v.size == 0]
    if not empty or node.graph or node.ir.graph is None or not any(_is_copied(v) for v in node.ir.graph.outputs):
        return ""
    return f"the output {empty[0]} is empty"


def _is_copied(output: ir.Value) -> bool:
    """Return whether a node computes an output that has elements, as far as its declared shape says."""
    return not output.is_initializer() and (output.shape is None or 0 not in output.shape.dims)


def _rewrite_output(facts: NodeFacts, edit: Edit) -> str:
    """Make the empty output a constant, which is on the CPU and is not copied."""
    if facts.subgraphs:
        return "it has a subgraph"
    for index, value in enumerate(facts.outputs):
        if value is not None and value.graph_output and value.size == 0:
            edit.replace_output(edit.constant(np.zeros(value.sizes, value.numpy_type), "empty"), index)
    if not any(v.uses() or v.is_graph_output() for v in edit.node.outputs):
        edit.remove()
    return ""


QUIRK_OUTPUT = Quirk(
    id="empty-output",
    code="DP634",
    title="an empty output among others",
    ops=(),
    outcome="empty output",
    last="1.27",
    sources=(MEASURED, DML_PROVIDER + "ExecutionProvider.cpp"),
    matches=_matches_output,
    rewrite=_rewrite_output,
)
