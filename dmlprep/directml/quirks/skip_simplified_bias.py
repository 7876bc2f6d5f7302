"""SkipSimplifiedLayerNormalization with a bias: DirectML gives wrong numbers."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_BIAS = 3


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Add the bias to one side of the sum before the node."""
    edit.set_input(1, edit.before("Add", [edit.input(1), edit.input(_BIAS)], like=edit.input(1)))
    edit.node.resize_inputs(_BIAS)
    return ""


QUIRK = Quirk(
    id="skip-simplified-bias",
    code="DP646",
    title="SkipSimplifiedLayerNormalization with a bias",
    ops=("com.microsoft::SkipSimplifiedLayerNormalization",),
    outcome="wrong numbers",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/fused_kernels.py: 0.4 of the largest value off with a bias, "
        "right without one",
    ),
    matches=lambda node: "it has a bias" if node.input(_BIAS) is not None else "",
    rewrite=_rewrite,
)
