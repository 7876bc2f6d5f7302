"""Write into a model the types and shapes that inference found; denotations and names of free sizes stay."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import dims_of
from dmlprep.graph.analysis.known import Known
from dmlprep.graph.model.dims import with_dims
from dmlprep.graph.model.walk import main_graphs


def write_types(model: ir.Model, known: Known) -> None:
    """Write the inferred type and shape of every value; denotations stay, names of sizes that are still free too."""
    for graph in main_graphs(model):
        outputs = set(graph.outputs)
        for node in graph:
            for value in node.outputs:
                _write(value, known, value in outputs)
        if graph is not model.graph:
            for value in graph.inputs:
                _write(value, known, False)


def _write(value: ir.Value, known: Known, is_output: bool) -> None:
    proto = known.types.get(value)
    if proto is None:
        value.shape = None
        return
    value.type = ir.serde.deserialize_type_proto_for_type(proto)
    if not proto.HasField("tensor_type"):
        value.shape = ir.serde.deserialize_type_proto_for_shape(proto)
        return
    dims, old = dims_of(proto), value.shape
    if dims is None:
        # The checker wants a shape on every graph output: what is declared stays, but for sizes that nobody proved.
        value.shape = _unproved(old, known) if is_output and old is not None else None
        return
    names = [None if isinstance(d, int) else d.value for d in old] if old is not None and len(old) == len(dims) else []
    new = [
        names[i] if i < len(names) and names[i] and not isinstance(d, int) and (is_output or d is None) else d
        for i, d in enumerate(dims)
    ]
    if is_output or value not in known.assumed:
        new = [None if isinstance(d, str) and known.substitute(d) is not None else d for d in new]
    value.shape = with_dims(old, new)


def _unproved(old: ir.Shape, known: Known) -> ir.Shape:
    dims = [d if isinstance(d, int) or not d.value or known.substitute(d.value) is None else None for d in old]
    return with_dims(old, [d if isinstance(d, int) or d is None else d.value for d in dims])
