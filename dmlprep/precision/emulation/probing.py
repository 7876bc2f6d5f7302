"""What graphs that are run only for their numbers need."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.model import Model
from dmlprep.model.walk import graphs

__all__ = ["forget_symbolic_shapes"]


def forget_symbolic_shapes(model: Model) -> None:
    """Drop the shapes of inner values that name dimensions.

    ONNX Runtime lets values of the same named size share memory. Exporters name an output's height as the input's,
    though it is twice that; as an output that does no harm, as an inner value the run fails.
    """
    for _, graph in graphs(model.ir):
        ends = {id(v) for v in (*graph.inputs, *graph.outputs)} if isinstance(graph, ir.Graph) else set()
        for node in graph:
            for value in node.outputs:
                shape = value.shape
                if shape is not None and id(value) not in ends and not all(isinstance(d, int) for d in shape):
                    value.shape = None
