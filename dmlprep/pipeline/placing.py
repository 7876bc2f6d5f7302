"""What steps are told of placement: passes ask, and the room ``placement`` stands beside theirs."""

from __future__ import annotations

from typing import Any

from dmlprep.model import Model
from dmlprep.passes import Context, OnCpu
from dmlprep.placement import choose_opset, place
from dmlprep.targets import Target

__all__ = ["context_for"]


def context_for(target: Target, **more: Any) -> Context:
    """The context of a step, with what placement on ``target`` answers; ``more`` are its other fields."""

    def on_cpu(model: Model) -> list[OnCpu]:
        return [
            OnCpu(n.name, n.op)
            for n in place(model, target).nodes
            if n.provider != "DmlExecutionProvider" and n.role == "compute" and n.code != "DP506"
        ]

    return Context(target, choose_opset=lambda m: choose_opset(m, target), on_cpu=on_cpu, **more)
