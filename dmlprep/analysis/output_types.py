"""Types that a file declares for its outputs, held against those that they have."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.analysis.known import Known
from dmlprep.errors import ModelRefused

__all__ = ["refuse_wrong_types"]


def refuse_wrong_types(graph: ir.Graph, known: Known) -> None:
    """Refuse a graph that declares an output as another type than it has.

    Raises:
        ModelRefused: DP003.
    """
    for value in graph.outputs:
        proto = known.type(value)
        declared, found = _named(value.type), _named(proto and ir.serde.deserialize_type_proto_for_type(proto))
        if declared and found and declared != found:
            raise ModelRefused(
                f"output {value.name} is declared {declared}, and is {found}: ONNX Runtime does not load that",
                where=value.name or "",
                code="DP003",
                fix="export the model again",
            )


def _named(kind: ir.TypeProtocol | None) -> str:
    """``FLOAT``, ``sequence of INT64``; empty where it is not known whole."""
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        inner = _named(kind.elem_type)
        return inner and f"{'sequence' if isinstance(kind, ir.SequenceType) else 'optional'} of {inner}"
    return kind.dtype.name if kind is not None and kind.dtype != ir.DataType.UNDEFINED else ""
