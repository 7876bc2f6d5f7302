"""What a fused form is: nodes that compute what one operator of com.microsoft does, and that operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.graph.model.tensors import ReshapedTensor
from dmlprep.graph.rewriting.builder import as_attribute

DOMAIN = "com.microsoft"

Shared = dict[object, ir.Value]
"""What several fused nodes of one graph read: made once, found again by what it was made of."""


@dataclass(frozen=True)
class Operand:
    """An input of a fused node.

    Attributes:
        facts: as the target's rules see it.
        get: the value, while the graph is edited. It is asked late: an edit before may have put another in its place.
    """

    facts: Value
    get: Callable[[Edit, Shared], ir.Value]


@dataclass(frozen=True)
class Match:
    """Nodes that one node can stand for.

    Attributes:
        at: the new node goes before this one.
        gives: the nodes whose outputs it gives, with the place of each among its own outputs.
        inputs: ``None`` for one left out.
        reshaped: shape of its first output where that is another than what the nodes gave; a Reshape follows then.
        cleared: where its first output is to be 0: bool, in the shape of that output or one that is spread to it.
        unread: what its outputs behind those are, which nothing reads: some kernels take no node without them.
    """

    at: NodeFacts
    gives: Sequence[tuple[NodeFacts, int]]
    inputs: Sequence[Operand | None]
    attributes: Mapping[str, int | float]
    reshaped: Sequence[int] = field(default=())
    cleared: Operand | None = None
    unread: Sequence[Value] = field(default=())

    def as_node(self, op_type: str) -> NodeFacts:
        """The new node as the target's rules see it."""
        facts = NodeFacts(ir.Node(DOMAIN, op_type, [], _attributes(self.attributes)), self.at.graph, 1)
        facts.inputs = [None if operand is None else operand.facts for operand in self.inputs]
        outputs: list[Value | None] = [None] * (1 + max(place for _, place in self.gives))
        for giver, place in self.gives:
            outputs[place] = giver.output()
        facts.outputs = [*outputs, *self.unread]
        return facts


@dataclass(frozen=True)
class Form:
    """One operator of com.microsoft, and the nodes that it stands for.

    Attributes:
        option: name of the step's option.
        op_type: the operator.
        anchors: operators that ``match`` is asked about.
        match: the nodes around an anchor; a sentence where they have the form and yet cannot be one node; ``None``
            where they do not have the form.
        write_out: put such nodes in the place of the operator that an ``Edit`` is at; a reason where that cannot be.
        on_cpu: whether ONNX Runtime's CPU provider has a kernel for it.
    """

    option: str
    op_type: str
    anchors: frozenset[str]
    match: Callable[[NodeFacts], Match | str | None]
    write_out: Callable[[NodeFacts, Edit], str]
    on_cpu: bool


def given(node: NodeFacts, index: int) -> Operand:
    """What a node reads at ``index``, as it is."""

    def get(edit: Edit, shared: Shared) -> ir.Value:
        value = node.ir.inputs[index]
        assert value is not None
        return value

    facts = node.inputs[index]
    assert facts is not None
    return Operand(facts, get)


def view(operand: Operand, shape: Sequence[int], name: str, *, share: bool = False) -> Operand:
    """An operand in another shape: the tensor of a constant with other sizes, or a Reshape.

    Args:
        name: what new names begin with.
        share: one Reshape serves all matches: each of them is at its anchor, so that the first is before the others.
    """
    sizes = tuple(shape)
    if operand.facts.static and tuple(operand.facts.sizes) == sizes:
        return operand
    facts = Value(name, operand.facts.graph)
    facts.type, facts.shape = operand.facts.type, sizes
    facts.constant = facts.initializer = operand.facts.constant

    def get(edit: Edit, shared: Shared) -> ir.Value:
        value = operand.get(edit, shared)
        key = (value, sizes)
        if key not in shared and operand.facts.constant and value.const_value is not None:
            shared[key] = edit.initializer(ReshapedTensor(value.const_value, sizes), name)
        elif key not in shared:
            made = edit.before("Reshape", [value, edit.integers(sizes, "shape")], like=value, shape=sizes)
            if not share:
                return made
            shared[key] = made
        return shared[key]

    return Operand(facts, get)


def vector(weight: Operand | None, number: float, size: int, data: Value, name: str) -> Operand:
    """A weight as [size]; without one a constant that is ``number`` everywhere, of the element type of ``data``."""
    if weight is not None:
        return view(weight, [size], name)
    facts = Value(name, data.graph)
    facts.type, facts.shape, facts.constant, facts.initializer = data.type, (size,), True, True
    kind = data.dtype

    def get(edit: Edit, shared: Shared) -> ir.Value:
        key = (name, kind, size)
        if key not in shared:
            assert kind is not None
            shared[key] = edit.constant(np.full(size, number, kind.numpy()), name)
        return shared[key]

    return Operand(facts, get)


def write(op_type: str, match: Match, edit: Edit, shared: Shared) -> ir.Node:
    """Write the node of a match; the nodes that it stands for stay, and nothing reads them.

    Args:
        edit: at the node before which the new one goes.
    """
    inputs = [None if operand is None else operand.get(edit, shared) for operand in match.inputs]
    outputs = [ir.Value(name="") for _ in range(1 + max(place for _, place in match.gives))]
    for giver, place in match.gives:
        old = giver.ir.outputs[0]
        shape = ir.Shape(match.reshaped) if match.reshaped and place == 0 else old.shape
        outputs[place] = edit.new_value(op_type.lower(), old.type, shape)
    for value in match.unread:
        kind = value.dtype
        assert kind is not None  # a form knows the type of what it takes
        outputs.append(edit.new_value(value.name, ir.TensorType(kind), ir.Shape(value.sizes)))
    name = edit.node_name(op_type.lower())
    node = ir.Node(DOMAIN, op_type, inputs, _attributes(match.attributes), outputs=outputs, name=name)
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
    return node


def _cleared(rows: Operand, result: ir.Value, giver: NodeFacts, edit: Edit, shared: Shared) -> ir.Value:
    facts = giver.output()
    kind = facts.dtype if facts is not None else None
    assert kind is not None  # a form knows the type of what it takes
    key = ("cleared", kind)
    if key not in shared:
        shared[key] = edit.constant(np.array(0, kind.numpy()), "zero")
    sizes = list(result.shape.dims) if result.shape is not None else []
    known = [size for size in sizes if isinstance(size, int)]
    shape = known if len(known) == len(sizes) and known else None
    return edit.before("Where", [rows.get(edit, shared), shared[key], result], like=result, shape=shape)


def _attributes(attributes: Mapping[str, int | float]) -> list[ir.Attr]:
    return [as_attribute(name, value) for name, value in attributes.items()]
