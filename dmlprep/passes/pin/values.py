"""Values for inputs: nodes read a constant in the place of the input, which stays as an unused one or goes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from dmlprep.core.errors import UsageError
from dmlprep.graph.model.pinned import Value, note_values, pinned_array, pinned_values, plain_array, short_value
from dmlprep.graph.rewriting.builder import GraphBuilder, move_readers
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.base import Context
from dmlprep.passes.catalog import suggest
from dmlprep.portable.arrays import Array


def check_names(model: ir.Model, values: Mapping[str, Value], drop: bool) -> None:
    """Refuse values for what is no input (DP203), was pinned to another value, or is an output and to go (DP204)."""
    inputs = {v.name or "": v for v in model.graph.inputs}
    before = pinned_values(model)
    for name, value in values.items():
        where = f"pin {name}"
        if name in before:
            if not _agree(name, value, before[name]):
                what = f"input {name!r} was pinned to {before[name]} before, and cannot be {value}"
                raise UsageError(what, where=where, code="DP204", fix="prepare the original")
        elif name not in inputs:
            what, fix = f"the model has no input {name!r}", suggest(name, list(inputs))
            raise UsageError(what, where=where, code="DP203", fix=fix)
        elif drop and inputs[name].is_graph_output():
            what = f"input {name!r} is an output as well and cannot go"
            raise UsageError(what, where=where, code="DP204", fix="leave drop = true out")


def _agree(name: str, value: Value, before: Value) -> bool:
    given, noted = plain_array(name, value), np.asarray(before)
    return given.shape in ((), noted.shape) and bool(np.all(given == noted))


def value_shapes(graph: ir.Graph, values: Mapping[str, Value]) -> dict[str, list[int]]:
    """The shapes that values give their inputs: a list its own, one number none where the rank is not known."""
    found: dict[str, list[int]] = {}
    for value in graph.inputs:
        name = value.name or ""
        if name not in values or name in graph.initializers:
            continue
        if isinstance(values[name], list):
            found[name] = list(plain_array(name, values[name]).shape)
        elif value.shape is None:
            found[name] = []
    return found


def pin_values(model: ir.Model, values: Mapping[str, Value], drop: bool, context: Context) -> dict[str, list[int]]:
    """Put a constant in the place of each input that has a value; return the values' shapes, by input.

    Raises:
        UsageError: DP208, a value does not fit its input.
    """
    builder = GraphBuilder(model.graph, Names(model))
    arrays: dict[str, Array] = {}
    for value in list(model.graph.inputs):
        name = value.name or ""
        if name not in values:
            continue
        arrays[name] = pinned_array(value, values[name])
        if value.uses():
            assert value.dtype is not None
            tensor = ir.tensor(arrays[name].tolist(), value.dtype) if value.dtype == ir.DataType.STRING else None
            wish = f"{name}_pinned"
            move_readers(value, builder.initializer(tensor, wish) if tensor else builder.constant(arrays[name], wish))
        if drop:
            model.graph.inputs.remove(value)
            model.graph.initializers.pop(name, None)
        kept = "the model takes it no more" if drop else "the input stays, and nothing reads it"
        text = f"input {name} is pinned to {short_value(values[name])}: {kept}"
        context.report("DP207", text, node=name, dropped=drop)
    note_values(model, arrays)
    return {name: list(array.shape) for name, array in arrays.items()}
