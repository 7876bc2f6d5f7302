"""Write constants into the graph: for inputs with a fixed value, and for known results of shape arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from dmlprep.core.errors import UsageError
from dmlprep.graph.analysis.folding import Array
from dmlprep.graph.analysis.knowledge import Known
from dmlprep.graph.analysis.symbolic import constant_target
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.pinned import Value, note_values, pinned_array, pinned_values, plain_array, short_value
from dmlprep.graph.model.walk import main_graphs
from dmlprep.graph.rewriting.builder import GraphBuilder, as_initializer, move_readers, replace_value
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.base import Context
from dmlprep.passes.catalog import suggest

_SMALL_BYTES = 4096
_ROOM_BYTES = 4 << 20  # limit of large constants together; a share of the model's size is added
_ROOM_SHARE = 0.02
_GENERATORS = frozenset({"ConstantOfShape", "Expand", "Range", "Tile"})


def constants_no_inputs(model: ir.Model) -> int:
    """Remove initializers from the graph inputs of a model of IR 3 or older, in place, and return how many.

    IR 3 lists all initializers as inputs, but callers cannot set them. The model gets IR version 4. A model of IR 4 or
    newer is unchanged (0).
    """
    if model.ir_version >= 4:
        return 0
    listed = [v for v in model.graph.inputs if v.name in model.graph.initializers]
    for value in listed:
        model.graph.inputs.remove(value)
    model.ir_version = 4
    return len(listed)


class _Constants:
    """Creates initializers for values that became constant; equal ones of a graph are shared.

    ``room``: how many bytes all constants above 4 KiB may have together.
    """

    def __init__(self, known: Known, room: int, budget: Budget) -> None:
        self.known, self.room, self.budget = known, room, budget
        self.initializers: dict[tuple[int, str, tuple[int, ...], bytes], ir.Value] = {}

    def may(self, value: ir.Value) -> bool:
        """Return whether nodes should read a value as a constant, instead of from the node that computes it.

        False if its content is unknown or exceeds the room or the budget, or if no node or a Constant has it. Also
        False above 4 KiB if a runtime folds the node anyway (Expand, Range, ...).
        """
        producer = value.producer()
        array = self.known.constants.get(value)
        if array is None or producer is None or producer.op_type == "Constant" or not self.budget.affords(array.nbytes):
            return False  # the node stays
        if array.nbytes <= _SMALL_BYTES:
            return True
        # If a node computes many numbers from few, it stays: runtimes fold it when they load the model.
        return producer.op_type not in _GENERATORS and array.nbytes <= self.room

    def get(self, value: ir.Value) -> ir.Value:
        """Return an initializer with the content of ``value``, in the graph of the node that computes ``value``."""
        producer = value.producer()
        array = self.known.constants[value]
        assert producer is not None
        graph = producer.graph
        assert isinstance(graph, ir.Graph)
        key = (id(graph), array.dtype.str, array.shape, array.tobytes())
        if key not in self.initializers:
            self.room -= array.nbytes if array.nbytes > _SMALL_BYTES else 0
            self.budget.spend(array.nbytes, what=f"the folded value {value.name!r}", where="")
            initializer = _initializer(graph, value.name or "", array)
            self.initializers[key] = initializer
            self.known.set_constant(initializer, array)
        return self.initializers[key]


def _initializer(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    return as_initializer(graph, ir.Value(name=name), ir.Tensor(np.array(array), name=name))


def put_constants(model: ir.Model, known: Known, nbytes: int, budget: Budget) -> None:
    """Make nodes and graph outputs read constants instead of computed values whose content is known, in place.

    Nodes that become unused stay.

    Args:
        known: types and constants of the model's values.
        nbytes: size of the model's tensors in bytes. Constants above 4 KiB may together add 2 % of it, and 4 MiB.
        budget: limit for constants that dmlprep creates; when it is used up, values stay computed.
    """
    constants = _Constants(known, _ROOM_BYTES + int(nbytes * _ROOM_SHARE), budget)
    for graph in main_graphs(model):
        for value in list(graph.outputs):
            producer = value.producer()
            if value not in known.constants or producer is None or producer.op_type == "Constant":
                continue
            if producer.graph is graph and budget.affords(known.constants[value].nbytes):
                _constant_output(graph, value, producer, known, budget)
    pending = [
        node
        for graph in main_graphs(model)
        for node in graph
        if not node.outputs or any(v not in known.constants for v in node.outputs)
    ]
    needed: set[ir.Node] = set(pending)
    while pending:
        node = pending.pop()
        for index, read in enumerate(node.inputs):
            if read is None or read not in known.constants:
                continue
            producer = read.producer()
            if constants.may(read):
                node.replace_input_with(index, constants.get(read))
            elif producer is not None and producer not in needed:
                needed.add(producer)
                pending.append(producer)


def put_targets(model: ir.Model, known: Known) -> None:
    """Replace the computed target shape of each Reshape by a constant such as ``[0, -1, 12, 64]`` where that is equal.

    The shape must be partly known. The model is changed in place; a changed Reshape loses ``allowzero``.
    """
    for graph in main_graphs(model):
        names = {v.name for node in graph for v in node.outputs} | set(graph.initializers)
        names.update(v.name for v in graph.inputs)
        for node in list(graph):
            if node.domain not in ("", "ai.onnx") or len(node.inputs) < 2 or node.inputs[1] in known.constants:
                continue
            target = constant_target(known, node)
            if target is None:
                continue
            name = f"{node.outputs[0].name}_shape"
            while name in names:
                name += "_"
            names.add(name)
            initializer = _initializer(graph, name, target)
            known.set_constant(initializer, target)
            node.replace_input_with(1, initializer)
            node.attributes.pop("allowzero", None)


def _constant_output(graph: ir.Graph, value: ir.Value, producer: ir.Node, known: Known, budget: Budget) -> None:
    """Replace a graph output with known content by a new Constant node, whose output has the same name."""
    array = known.constants[value]
    budget.spend(array.nbytes, what=f"the folded output {value.name!r}", where="")
    tensor = ir.Tensor(np.array(array), name=value.name)
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], num_outputs=1, name=producer.name)
    output = node.outputs[0]
    known.set_constant(output, array)
    graph.insert_before(producer, node)
    replace_value(value, output, "")


def check_names(model: ir.Model, values: Mapping[str, Value], drop: bool) -> None:
    """Check that ``values`` can be pinned: their names, and contradictions with earlier pins.

    ``drop``: the inputs will be removed, so none may be an output too.

    Raises:
        UsageError: DP203, a name is not an input. DP204, an input was pinned to another value before, or would be
            dropped although it is also an output.
    """
    inputs = {v.name or "": v for v in model.graph.inputs}
    before = pinned_values(model)
    for name, value in values.items():
        where = f"pin {name}"
        if name in before:
            if not _agree(name, value, before[name]):
                what = f"input {name!r} is already pinned to {before[name]}, and cannot become {value}"
                raise UsageError(what, where=where, code="DP204", fix="prepare the original")
        elif name not in inputs:
            what, fix = f"the model has no input {name!r}", suggest(name, list(inputs))
            raise UsageError(what, where=where, code="DP203", fix=fix)
        elif drop and inputs[name].is_graph_output():
            what = f"input {name!r} is also an output and cannot be removed"
            raise UsageError(what, where=where, code="DP204", fix="remove drop = true")


def _agree(name: str, value: Value, before: Value) -> bool:
    array, noted = plain_array(name, value), np.asarray(before)
    return array.shape in ((), noted.shape) and bool(np.all(array == noted))


def value_shapes(graph: ir.Graph, values: Mapping[str, Value]) -> dict[str, list[int]]:
    """Return input -> shape for the inputs whose shape follows from their value.

    A list gives its shape. A single value gives the shape [] if the input's rank is unknown; otherwise the input is not
    in the result.
    """
    shapes: dict[str, list[int]] = {}
    for value in graph.inputs:
        name = value.name or ""
        if name not in values or name in graph.initializers:
            continue
        if isinstance(values[name], list):
            shapes[name] = list(plain_array(name, values[name]).shape)
        elif value.shape is None:
            shapes[name] = []
    return shapes


def pin_values(model: ir.Model, values: Mapping[str, Value], drop: bool, context: Context) -> dict[str, list[int]]:
    """Make nodes read a constant instead of each input in ``values``, in place, and note the values in the metadata.

    Each pinned input is reported (DP207). With ``drop``, the inputs are removed. Returns the shape of each value, by
    input.

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
        outcome = "the model no longer has this input" if drop else "the input remains, but no node reads it"
        text = f"input {name} is pinned to {short_value(values[name])}: {outcome}"
        context.report("DP207", text, node=name, dropped=drop)
    note_values(model, arrays)
    return {name: list(array.shape) for name, array in arrays.items()}
