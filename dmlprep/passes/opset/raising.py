"""Raise old models by onnx's converter."""

from __future__ import annotations

from dmlprep.errors import ModelRefused
from dmlprep.model import Model
from dmlprep.model.walk import nodes
from dmlprep.passes.opset.handling import relabels_upward
from dmlprep.passes.opset.schemas import domain_of, since_versions

__all__ = ["must_raise", "raise_opset"]


def must_raise(model: Model, target: int) -> bool:
    """Whether a node changes on the way up to ``target`` by more than the types it takes."""
    before = model.opset
    history = since_versions()
    return any(
        before < since <= target and not relabels_upward(str(node.op_type), since)
        for node in nodes(model.ir)
        if domain_of(node) == ""
        for since in history.get(str(node.op_type), ())
    )


def raise_opset(model: Model, target: int) -> int:
    """Raise."""
    raise ModelRefused("raising is not built yet", code="DP102")
