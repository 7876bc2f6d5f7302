"""Types that a file declares for its outputs, held against those that they have."""

from __future__ import annotations

from itertools import chain

import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.analysis.known import Known
from dmlprep.graph.analysis.schemas import schema_at, type_constraints, type_parameters
from dmlprep.graph.model.walk import attribute_graphs


def refuse_wrong_types(graph: ir.Graph, known: Known, *, bodies: bool = False) -> None:
    """Refuse a graph that declares an output as another type than it has.

    Args:
        bodies: look into the bodies of If, Loop and Scan as well.

    Raises:
        ModelRefused: DP003.
    """
    inner = (body for node in graph.all_nodes() for _, body in attribute_graphs(node)) if bodies else ()
    for value in chain(graph.outputs, *(body.outputs for body in inner)):
        declared, found = _named(value.type), _of_inputs(value, known) or _known(value, known)
        if declared and found and declared != found:
            what = f"output {value.name} is declared {declared}, and is {found}: ONNX Runtime does not load that"
            raise ModelRefused(what, where=value.name or "", code="DP003", fix="export the model again")


def _of_inputs(value: ir.Value, known: Known) -> str:
    """The type by an input that must have the same: what is declared counts as known where nothing else is."""
    node, place = value.producer(), value.index()
    if node is None or place is None or node.domain:
        return ""
    key = (node.op_type, known.version(node))
    if schema_at(*key) is None:
        return ""
    outputs, inputs = (type_parameters(*key, outputs=which) for which in (True, False))
    if place >= len(outputs) or outputs[place][1] == "Variadic" or outputs[place][0] not in type_constraints(*key):
        return ""
    # A variadic input comes last and may have a type for each value; those that are left out come last too.
    same = [at for at, (kind, how) in enumerate(inputs) if kind == outputs[place][0] and how != "Variadic"]
    alike = (node.inputs[at] for at in same if at < len(node.inputs))
    return next((found for one in alike if (found := _known(one, known))), "")


def _known(value: ir.Value | None, known: Known) -> str:
    proto = known.type(value)
    return _named(proto and ir.serde.deserialize_type_proto_for_type(proto))


def _named(kind: ir.TypeProtocol | None) -> str:
    """``FLOAT``, ``sequence of INT64``; empty where it is not known whole."""
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        inner = _named(kind.elem_type)
        return inner and f"{'sequence' if isinstance(kind, ir.SequenceType) else 'optional'} of {inner}"
    return kind.dtype.name if kind is not None and kind.dtype != ir.DataType.UNDEFINED else ""
