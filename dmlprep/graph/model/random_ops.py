"""Nodes that draw random numbers, so that a model returns different outputs in each run."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model.constants import held_tensor

RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""Operators that draw random numbers, so that the result differs in each run."""


def draws(node: ir.Node) -> bool:
    """Return True if a node without a seed draws numbers in each run: a random operator, or a Dropout in training mode.

    A Dropout counts if its training mode is true, or is not a constant.
    """
    if node.domain not in ("", "ai.onnx") or "seed" in node.attributes:
        return False
    if node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None:
        mode = held_tensor(node.inputs[2])
        return mode is None or bool(mode.numpy().any())
    return node.op_type in RANDOM
