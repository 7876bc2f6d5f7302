"""A fused form: nodes that compute the same as one operator of com.microsoft, and that operator."""

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
"""Values that several fused nodes of one graph share, by the parts that they are built from."""


@dataclass(frozen=True)
class Operand:
    """An input of a fused node.

    Attributes:
        facts: the value in the form that the target's rules read.
        get: returns the value while the graph is edited. Call it late: an earlier edit may have replaced the value.
    """

    facts: Value
    get: Callable[[Edit, Shared], ir.Value]


@dataclass(frozen=True)
class Match:
    """Nodes that one node can replace.

    Attributes:
        at: the new node is inserted before this one.
        gives: the nodes whose outputs the new node gives, with the index of each among its own outputs.
        reshaped: shape of its first output, where it differs from the replaced nodes' shape; a Reshape follows then.
        cleared: bool, true where its first output must be 0, in that output's shape or one that broadcasts to it.
        unread: further outputs, which are unused: some kernels do not accept the node without them.
    """

    at: NodeFacts
    gives: Sequence[tuple[NodeFacts, int]]
    inputs: Sequence[Operand | None]
    attributes: Mapping[str, int | float]
    reshaped: Sequence[int] = field(default=())
    cleared: Operand | None = None
    unread: Sequence[Value] = field(default=())

    def as_node(self, op_type: str) -> NodeFacts:
        """The new node in the form that the target's rules read."""
        facts = NodeFacts(ir.Node(DOMAIN, op_type, [], self.as_attributes()), self.at.graph, 1)
        facts.inputs = [None if operand is None else operand.facts for operand in self.inputs]
        outputs: list[Value | None] = [None] * (1 + max(place for _, place in self.gives))
        for giver, place in self.gives:
            outputs[place] = giver.output()
        facts.outputs = [*outputs, *self.unread]
        return facts

    def as_attributes(self) -> list[ir.Attr]:
        """The attributes of the new node."""
        return [as_attribute(name, value) for name, value in self.attributes.items()]


@dataclass(frozen=True)
class Form:
    """One operator of com.microsoft, and the nodes that it replaces.

    Attributes:
        option: name of the step's option.
        anchors: operators at which ``match`` is called.
        match: returns the nodes around an anchor; ``None`` if they do not have the form; a sentence if they have the
            form but must not be fused.
        write_out: expands the operator of an ``Edit`` into such nodes; returns a reason if that is impossible.
        on_cpu: whether ONNX Runtime's CPU provider has a kernel for it.
    """

    option: str
    op_type: str
    anchors: frozenset[str]
    match: Callable[[NodeFacts], Match | str | None]
    write_out: Callable[[NodeFacts, Edit], str]
    on_cpu: bool


def input_operand(node: NodeFacts, index: int) -> Operand:
    """The unchanged input ``index`` of a node."""

    def get(edit: Edit, shared: Shared) -> ir.Value:
        value = node.ir.inputs[index]
        assert value is not None
        return value

    facts = node.inputs[index]
    assert facts is not None
    return Operand(facts, get)


def view(operand: Operand, shape: Sequence[int], name: str, *, share: bool = False) -> Operand:
    """An operand in another shape: a constant's tensor with other sizes, or a Reshape. ``name`` begins new names.

    Args:
        share: all matches share one Reshape. It is inserted at the first match's anchor, so it is before the others.
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
    """A weight as [size]. Without a weight, a constant of ``number`` everywhere, of the element type of ``data``."""
    if weight is not None:
        return view(weight, [size], name)
    assert data.dtype is not None
    return constant(name, data.graph, np.full(size, number, data.dtype.numpy()))


def constant(name: str, graph: str, array: Array) -> Operand:
    """A constant; nodes of one graph share equal ones."""
    kind = ir.DataType.from_numpy(array.dtype).name.lower()
    key = (name, kind, array.shape, array.tobytes())
    return Operand(
        facts_of(name, graph, kind, array.shape, constant=True),
        lambda edit, shared: once(shared, key, lambda: edit.constant(array, name)),
    )


def facts_of(name: str, graph: str, kind: str, shape: Sequence[Dim] | None, *, constant: bool = False) -> Value:
    """A value that is not written yet, in the form that the target's rules read."""
    facts = Value(name, graph)
    facts.type, facts.shape = kind, None if shape is None else tuple(shape)
    facts.constant = facts.initializer = constant
    return facts


def once(shared: Shared, key: object, make: Callable[[], ir.Value]) -> ir.Value:
    """Return the value that is shared under a key; create it on first use."""
    if key not in shared:
        shared[key] = make()
    return shared[key]


def write(op_type: str, match: Match, edit: Edit, shared: Shared) -> None:
    """Write the node of a match before the node of ``edit``. The nodes that it replaces become unused."""
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
