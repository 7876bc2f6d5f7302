"""SkipSimplifiedLayerNormalization with a bias: DirectML gives wrong numbers."""

from __future__ import annotations

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import Quirk
from dmlprep.directml.targets.facts import NodeFacts

_BIAS = 3


def _matches(node: NodeFacts) -> str:
    return "it has a bias" if node.input(_BIAS) is not None else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Add the bias to one side of the sum before the node."""
    skip, bias = edit.node.inputs[1], edit.node.inputs[_BIAS]
    if skip is None or bias is None:
        return "an input is missing"
    edit.set_input(1, edit.before("Add", [skip, bias], like=skip))
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
    matches=_matches,
    rewrite=_rewrite,
)
