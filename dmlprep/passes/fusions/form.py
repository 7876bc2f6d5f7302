"""The parts of a fused form: an operator of com.microsoft, and how nodes that compute the same are replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.graph.model.dims import Dim
from dmlprep.graph.model.tensors import ReshapedTensor
from dmlprep.graph.rewriting.builder import as_attribute
from dmlprep.portable.arrays import Array

DOMAIN = "com.microsoft"

Shared = dict[object, ir.Value]
"""Values that several fused nodes of one graph share (masks, constants), by keys of what they are computed from."""


@dataclass(frozen=True)
class Operand:
    """An input of a node that will be written.

    Attributes:
        facts: type, shape and other facts of the value, as the target's rules read them.
        get: returns the value, and writes the nodes that compute it if needed. Call it just before the value is used:
            an earlier edit may have replaced the value.
    """

    facts: Value
    get: Callable[[Edit, Shared], ir.Value]


@dataclass(frozen=True)
class Match:
    """Nodes that one fused node can replace, and that node.

    Attributes:
        at: the fused node is inserted before this node.
        gives: the nodes whose first outputs the fused node replaces, each with the index of the fused node's output.
        inputs: the fused node's inputs; ``None`` for an omitted input.
        attributes: the fused node's attributes.
        reshaped: shape of the fused node's first output, if it differs from the replaced one; a Reshape then follows.
            Otherwise empty.
        cleared: bool tensor, true where the first output must be set to 0; it broadcasts to that output. ``None``:
            nowhere.
        unread: further outputs, which no node reads: some kernels do not accept the node without them.
    """

    at: NodeFacts
    gives: Sequence[tuple[NodeFacts, int]]
    inputs: Sequence[Operand | None]
    attributes: Mapping[str, int | float]
    reshaped: Sequence[int] = field(default=())
    cleared: Operand | None = None
    unread: Sequence[Value] = field(default=())

    def as_node(self, op_type: str) -> NodeFacts:
        """The fused node as facts that the target's rules can read; it is not in a graph."""
        facts = NodeFacts(ir.Node(DOMAIN, op_type, [], self.as_attributes()), self.at.graph, 1)
        facts.inputs = [None if operand is None else operand.facts for operand in self.inputs]
        outputs: list[Value | None] = [None] * (1 + max(place for _, place in self.gives))
        for giver, place in self.gives:
            outputs[place] = giver.output()
        facts.outputs = [*outputs, *self.unread]
        return facts

    def as_attributes(self) -> list[ir.Attr]:
        """The attributes of the fused node, as onnx_ir objects."""
        return [as_attribute(name, value) for name, value in self.attributes.items()]


@dataclass(frozen=True)
class Form:
    """An operator of com.microsoft, and the nodes that it can replace.

    Attributes:
        option: name of the option of the step ``fuse`` that selects this form.
        op_type: the operator.
        anchors: operators of the nodes for which ``match`` is called.
        match: returns the nodes around such a node that can be fused; ``None`` if they do not compute the operator; a
            reason (text) if they do, but must not be fused.
        write_out: replaces the operator's node by plain nodes, in place; returns an empty text, or a reason if that is
            impossible.
        on_cpu: whether ONNX Runtime's CPU provider has a kernel for the operator.
    """

    option: str
    op_type: str
    anchors: frozenset[str]
    match: Callable[[NodeFacts], Match | str | None]
    write_out: Callable[[NodeFacts, Edit], str]
    on_cpu: bool


def input_operand(node: NodeFacts, index: int) -> Operand:
    """The unchanged input ``index`` of a node, as an input for a fused node."""

    def get(edit: Edit, shared: Shared) -> ir.Value:
        value = node.ir.inputs[index]
        assert value is not None
        return value

    facts = node.inputs[index]
    assert facts is not None
    return Operand(facts, get)


def view(operand: Operand, shape: Sequence[int], name: str, *, share: bool = False) -> Operand:
    """An operand in another shape: a reshaped constant, or the output of a Reshape. ``operand`` itself if it fits.

    Args:
        name: the beginning of new names.
        share: whether all matches with the same value and shape share one Reshape. It is written before the first
            match.
    """
    sizes = tuple(shape)
    if operand.facts.static and tuple(operand.facts.sizes) == sizes:
        return operand
    old = operand.facts

    def get(edit: Edit, shared: Shared) -> ir.Value:
        value = operand.get(edit, shared)
        tensor = value.const_value if old.constant else None

        def make() -> ir.Value:
            if tensor is not None:
                return edit.initializer(ReshapedTensor(tensor, sizes), name)
            return edit.before("Reshape", [value, edit.integers(sizes, "shape")], like=value, shape=sizes)

        return once(shared, (value, sizes), make) if share or tensor is not None else make()

    return Operand(facts_of(name, old.graph, old.type, sizes, constant=old.constant), get)


def vector(weight: Operand | None, number: float, size: int, data: Value, name: str) -> Operand:
    """A weight reshaped to [size]; without a weight, a constant [size] of ``number``, with the type of ``data``."""
    if weight is not None:
        return view(weight, [size], name)
    assert data.dtype is not None
    return constant(name, data.graph, np.full(size, number, data.dtype.numpy()))


def constant(name: str, graph: str, array: Array) -> Operand:
    """A constant as an input for fused nodes; nodes of one graph share constants of equal name and content."""
    kind = ir.DataType.from_numpy(array.dtype).name.lower()
    key = (name, kind, array.shape, array.tobytes())
    return Operand(
        facts_of(name, graph, kind, array.shape, constant=True),
        lambda edit, shared: once(shared, key, lambda: edit.constant(array, name)),
    )


def facts_of(name: str, graph: str, kind: str, shape: Sequence[Dim] | None, *, constant: bool = False) -> Value:
    """The facts of a value that is not in the graph yet, as the target's rules read them.

    Args:
        graph: the graph that will contain the value.
        kind: the element type ("float").
        shape: the sizes; ``None`` if unknown.
        constant: whether the value is an initializer.
    """
    facts = Value(name, graph)
    facts.type, facts.shape = kind, None if shape is None else tuple(shape)
    facts.constant = facts.initializer = constant
    return facts


def once(shared: Shared, key: object, make: Callable[[], ir.Value]) -> ir.Value:
    """Return the value that is stored in ``shared`` under a key; ``make`` creates it on first use."""
    if key not in shared:
        shared[key] = make()
    return shared[key]


def write(op_type: str, match: Match, edit: Edit, shared: Shared) -> None:
    """Write the fused node of a match before the node of ``edit``, and connect its outputs.

    The nodes that it replaces become unused; they are not removed.
    """
    inputs = [None if operand is None else operand.get(edit, shared) for operand in match.inputs]
    outputs = [ir.Value(name="") for _ in range(1 + max(place for _, place in match.gives))]
    for giver, place in match.gives:
        old = giver.ir.outputs[0]
        shape = ir.Shape(match.reshaped) if match.reshaped and place == 0 else old.shape
        outputs[place] = edit.new_value(op_type.lower(), old.type, shape)
    for value in match.unread:
        kind = value.dtype
        assert kind is not None  # a form knows the types of its values
        outputs.append(edit.new_value(value.name, ir.TensorType(kind), ir.Shape(value.sizes)))
    name = edit.node_name(op_type.lower())
    node = ir.Node(DOMAIN, op_type, inputs, match.as_attributes(), outputs=outputs, name=name)
    edit.graph.insert_before(edit.node, node)
    for giver, place in match.gives:
        result = outputs[place]
        if match.cleared is not None and place == 0:
            result = _cleared(match.cleared, result, giver, edit, shared)
        if match.reshaped and place == 0:
            facts, old = giver.output(), giver.ir.outputs[0]
            sizes = facts.sizes if facts is not None else []
            result = edit.before("Reshape", [result, edit.integers(sizes, "shape")], like=old, shape=sizes)
        edit.at(giver.ir).replace_output(result)


def _cleared(rows: Operand, result: ir.Value, giver: NodeFacts, edit: Edit, shared: Shared) -> ir.Value:
    facts = giver.output()
    kind = facts.dtype if facts is not None else None
    assert kind is not None  # a form knows the types of its values
    zero = once(shared, ("cleared", kind), lambda: edit.constant(np.array(0, kind.numpy()), "zero"))
    sizes = list(result.shape.dims) if result.shape is not None else []
    known = [size for size in sizes if isinstance(size, int)]
    shape = known if len(known) == len(sizes) and known else None
    return edit.before("Where", [rows.get(edit, shared), zero, result], like=result, shape=shape)
