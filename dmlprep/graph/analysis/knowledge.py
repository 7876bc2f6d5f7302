"""What is known of the values of a model: types with shapes, and constants.

``Knowledge.swept`` takes types from onnx's inference over the whole graph, and reads or folds a constant when it is
asked for. ``shapes.Inference`` walks node by node instead: it refuses contradictions and carries sizes that are free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx
import onnx_ir as ir
from onnx.defs import OpSchema

from dmlprep.graph.analysis.attributes import constant_tensor, plain_attributes
from dmlprep.graph.analysis.folding import EVALUATORS, NUMPY_TYPES, Array, evaluate
from dmlprep.graph.analysis.polynomial import Polynomial
from dmlprep.graph.analysis.schemas import NEWEST, type_string
from dmlprep.graph.model.budget import in_force
from dmlprep.graph.model.checking import infer_shapes
from dmlprep.graph.model.dims import Dim
from dmlprep.graph.model.frozen import Frozen
from dmlprep.graph.model.protos import bodies
from dmlprep.graph.model.walk import attribute_graphs, count_nodes
from dmlprep.process.onnx_worker import calls
from dmlprep.process.onnx_worker.door import OnnxError

HINT_BYTES = 4096
"""Constants that onnx's rules look at are shapes, axes, scales: a few numbers."""

_DEEPEST = 50  # nodes of shape arithmetic behind one constant
_LARGEST = 1024  # elements that are folded: shapes, axes and masks' corners, no weights
_MOST_AT_WORK = 4 * _LARGEST  # and that are read and written on the way
_GROWING = frozenset({"Expand", "Pad", "Tile"})  # what makes much of little stays a node


def dims_of(proto: onnx.TypeProto | None) -> tuple[Dim, ...] | None:
    """Dims of a tensor type; ``None`` where its rank is unknown or it is no tensor."""
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else (d.dim_param or None)
        for d in proto.tensor_type.shape.dim
    )


def tensor_type(elem_type: int, dims: Sequence[Dim] | None) -> onnx.TypeProto:
    """A tensor type."""
    return onnx.helper.make_tensor_type_proto(elem_type, dims)


def type_of(tensor: ir.TensorProtocol) -> onnx.TypeProto:
    """The type of a tensor."""
    return tensor_type(int(tensor.dtype), [int(d) for d in tensor.shape.numpy()])


def is_static(dims: Sequence[Dim] | None) -> bool:
    """Whether every size is a number."""
    return dims is not None and all(isinstance(d, int) for d in dims)


def declared(value: ir.Value) -> onnx.TypeProto | None:
    """The type that the model writes for a value; for a constant, that of its tensor."""
    tensor = value.const_value
    if tensor is not None:
        return type_of(tensor)
    if value.type is None:
        return None
    proto = ir.serde.serialize_type(value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(proto, value.shape)
    return proto


def constant_of(value: ir.Value | None, ir_version: int) -> ir.TensorProtocol | None:
    """The tensor of an initializer that no caller can replace, or of a Constant node."""
    if value is not None and value.is_initializer():
        # From IR 4 on, an initializer that is also an input is only a default: its numbers may change.
        return None if value.is_graph_input() and ir_version >= 4 else value.const_value
    node = value.producer() if value is not None else None
    return constant_tensor(node) if node is not None and node.op_type == "Constant" and not node.domain else None


def shape_numbers(node: ir.Node, dims: Sequence[Dim]) -> Array | None:
    """What a Shape or Size computes of ``dims``; ``None`` where a size that it reads is free."""
    if node.op_type == "Size":
        count = math.prod(d if isinstance(d, int) else 2**63 for d in dims)
        return np.array(count, np.int64) if count < 2**63 else None
    part = dims[node.attributes.get_int("start", 0) : node.attributes.get_int("end", len(dims))]
    return np.array(part, np.int64) if is_static(part) else None


@dataclass
class Knowledge:
    """What is known of the values of one model.

    Attributes:
        types: the type of each value that has one, shapes included.
        constants: the values that are known numbers; those of large tensors are not read.
        unfolded: how many elements may still be computed.
    """

    model: ir.Model
    types: dict[ir.Value, onnx.TypeProto] = field(default_factory=dict)
    constants: dict[ir.Value, Array] = field(default_factory=dict)
    unfolded: int = field(default_factory=lambda: in_force().folded_elements)
    _asked: set[ir.Value] = field(default_factory=set)
    _depth: int = 0

    @classmethod
    def swept(cls, model: ir.Model, frozen: Frozen | None = None) -> Knowledge:
        """Types as onnx infers them over the whole graph; where it cannot, what the model declares."""
        found = cls(model)
        try:
            inferred = infer_shapes(frozen if frozen is not None and frozen.complete else model)
        except OnnxError:
            return found
        found._take(model.graph, inferred.graph)
        for value in (*model.graph.inputs, *model.graph.initializers.values()):
            found.type(value)
        return found

    def _take(self, graph: ir.Graph, proto: onnx.GraphProto) -> None:
        named = {v.name: v.type for part in (proto.value_info, proto.input, proto.output) for v in part}
        for node, node_proto in zip(graph, proto.node, strict=True):
            for output in node.outputs:
                found = named.get(output.name or "")
                if found is not None and type_string(found):
                    self.types[output] = found
            self.take_bodies(node, node_proto)

    def take_bodies(self, node: ir.Node, proto: onnx.NodeProto) -> None:
        """Take the types of the values inside a node's subgraphs from the same node after inference."""
        for (_, sub), sub_proto in zip(attribute_graphs(node), bodies(proto), strict=True):
            for value, info in zip(sub.inputs, sub_proto.input, strict=True):
                if type_string(info.type):
                    self.types[value] = info.type
            self._take(sub, sub_proto)

    # Types

    def type(self, value: ir.Value | None) -> onnx.TypeProto | None:
        """The value's type, ``None`` where it is not known."""
        proto = declared(value) if value is not None and value not in self.types else None
        if value is not None and proto is not None and type_string(proto):
            self.types[value] = proto
        return self.types.get(value) if value is not None else None

    def dtype(self, value: ir.Value | None) -> int:
        """The element type of a tensor (``onnx.TensorProto.FLOAT`` ...), 0 where it is not known."""
        proto = self.type(value)
        return proto.tensor_type.elem_type if proto is not None and proto.HasField("tensor_type") else 0

    def dims(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """Dims of a value, ``None`` where its rank is unknown."""
        return dims_of(self.type(value))

    def rank(self, value: ir.Value | None) -> int | None:
        """The number of dimensions."""
        dims = self.dims(value)
        return None if dims is None else len(dims)

    def static_shape(self, value: ir.Value | None) -> list[int] | None:
        """The dimensions where all of them are fixed."""
        sizes = [d for d in self.dims(value) or () if isinstance(d, int)]
        return sizes if len(sizes) == self.rank(value) else None

    def set_type(self, value: ir.Value, proto: onnx.TypeProto | None) -> None:
        """Note what type a value has; whatever was known of it is forgotten."""
        self.constants.pop(value, None)
        self._asked.discard(value)
        if proto is None:
            self.types.pop(value, None)
        else:
            self.types[value] = proto

    def by_rule(
        self, schema: OpSchema, node: onnx.NodeProto, inputs: Sequence[ir.Value | None], opset: int
    ) -> dict[str, onnx.TypeProto]:
        """What onnx's rule of an operator says of a node's outputs, by name; nothing where an input has no known type.

        Raises:
            OnnxError: types or shapes contradict each other.
        """
        types: dict[str, onnx.TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for value in filter(None, inputs):
            proto, name = self.type(value), value.name or ""
            if proto is None:
                return {}
            types[name] = proto
            array = self.constant(value)
            if array is not None and array.nbytes <= HINT_BYTES:
                data[name] = onnx.numpy_helper.from_array(array, name)
        with calls.at_node(node):
            return calls.infer_node(schema, node, types, data, opset, self.model.ir_version)

    def alone(
        self, node: ir.Node, opsets: Mapping[str, int], functions: Iterable[onnx.FunctionProto] = (), *, strict: bool
    ) -> onnx.GraphProto:
        """A graph of one node, whose inputs are what the node and its bodies read, after onnx's inference.

        Raises:
            OnnxError: types or shapes contradict each other, where ``strict``.
        """
        subgraphs = [graph for _, graph in attribute_graphs(node)]
        inner = [n for graph in subgraphs for n in graph.all_nodes()]
        made = {v for n in inner for v in n.outputs} | {v for graph in subgraphs for v in graph.inputs}
        proto = ir.serde.serialize_node(node)
        graph = onnx.GraphProto(name="alone", node=[proto])
        read = {v.name: v for n in (node, *inner) for v in n.inputs if v is not None and v.name and v not in made}
        for name, value in read.items():
            array, known = self.constant(value), self.type(value)
            if array is not None and array.nbytes <= HINT_BYTES:
                graph.initializer.append(onnx.numpy_helper.from_array(array, name))
            elif known is not None:
                graph.input.append(onnx.ValueInfoProto(name=name, type=known))
        graph.output.extend(onnx.ValueInfoProto(name=v.name) for v in node.outputs if v.name)
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        version = self.model.ir_version
        model = onnx.ModelProto(ir_version=version, graph=graph, opset_import=imports, functions=functions)
        with calls.at_node(proto):
            return calls.infer_shapes(model, strict=strict).graph

    # Constants

    def constant(self, value: ir.Value | None) -> Array | None:
        """The elements of a small constant, ``None`` for everything else."""
        if value is None:
            return None
        if value not in self._asked:
            self._asked.add(value)  # before it is read: a chain that comes back to itself has no value
            found = self._read(value)
            if found is not None:
                self.constants[value] = found
        return self.constants.get(value)

    def _read(self, value: ir.Value) -> Array | None:
        node, tensor = value.producer(), constant_of(value, self.model.ir_version)
        if tensor is None and node is not None and not node.domain:
            return self.fold(node)
        if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes > HINT_BYTES:
            return None
        return np.asarray(tensor.numpy())

    def fold(self, node: ir.Node) -> Array | None:
        """The output of a node of shape arithmetic, ``None`` where it is not one or an input is not known.

        Function bodies of ONNX compute with Shape, Gather, Concat ... what a model with fixed shapes already knows.
        """
        if any(a.is_ref() for a in node.attributes.values()) or self._depth >= _DEEPEST:
            return None
        self._depth += 1
        try:
            found = self._folded(node)
        finally:
            self._depth -= 1
        return found if found is not None and found.size <= _LARGEST else None

    def _folded(self, node: ir.Node) -> Array | None:
        if node.op_type in ("Shape", "Size"):
            dims = self.dims(node.inputs[0] if node.inputs else None)
            return None if dims is None else shape_numbers(node, dims)
        op_type, read, attributes = node.op_type, list(node.inputs), plain_attributes(node)
        if op_type == "CastLike":
            if len(read) != 2:  # in a function's body nobody has counted them
                return None
            op_type, read, attributes = "Cast", read[:1], {"to": self.dtype(read[1])}
        if op_type not in EVALUATORS or op_type in _GROWING:
            return None
        known = [self.constant(value) for value in read]
        arrays = [a for a in known if a is not None and a.size <= _LARGEST and a.dtype in NUMPY_TYPES.values()]
        if len(arrays) < len(read):
            return None
        results = evaluate(
            op_type, NEWEST, arrays, attributes, len(node.outputs), lambda n: n <= _MOST_AT_WORK and self.may_fold(n)
        )
        return results[0] if results else None

    def may_fold(self, elements: int) -> bool:
        """Whether so many elements may be computed. They count from then on: sizes are the model's choice."""
        if elements > self.unfolded:
            return False
        self.unfolded -= elements
        return True


Element = Polynomial | None
Elements = tuple[bool, tuple[Element, ...]]
"""Whether the value is a vector (else a scalar), and what is known of each element."""

_ALL_BYTES = 256 << 20  # of all values together that are held at once; small ones are held beyond it
_SMALL_BYTES = 4096
_WALKED, _WALKED_PER_NODE = 100_000, 64  # a walk through three loops inside one another, of four rounds each


@dataclass
class Known(Knowledge):
    """What is known of the values of one model from the nodes that were walked so far, and from nowhere else.

    Attributes:
        partial: small integer values of which some elements are free sizes.
        assumed: values whose shape is only declared by the model: their operator is not onnx's.
        substitute: the size of a named dimension, for what is declared and cannot be inferred.
        walked: how many nodes were walked so far, those of bodies once for each round.
    """

    partial: dict[ir.Value, Elements] = field(default_factory=dict)
    assumed: set[ir.Value] = field(default_factory=set)
    substitute: Callable[[str], int | None] = field(default=lambda name: None)
    walked: int = 0
    _held: int = 0

    @cached_property
    def most_walked(self) -> int:
        """How many nodes may be walked before shapes that loops carry are given up: nested loops multiply."""
        return _WALKED + _WALKED_PER_NODE * count_nodes(self.model)

    def type(self, value: ir.Value | None) -> onnx.TypeProto | None:
        """The value's type, ``None`` where it is not known: what is declared counts where a rule says so."""
        return self.types.get(value) if value is not None else None

    def constant(self, value: ir.Value | None) -> Array | None:
        """The numbers of a value, ``None`` where they are not known."""
        return self.constants.get(value) if value is not None else None

    def set_type(self, value: ir.Value, proto: onnx.TypeProto | None) -> None:
        """Note what type a value has; whatever was known of it is forgotten."""
        super().set_type(value, proto)
        self.partial.pop(value, None)
        self.assumed.discard(value)

    def set_constant(self, value: ir.Value, array: Array) -> None:
        """Note what numbers a value is."""
        elem = next(code for code, dtype in NUMPY_TYPES.items() if dtype == array.dtype)
        self.set_type(value, tensor_type(elem, array.shape))
        self.hold(value, array)

    def hold(self, value: ir.Value, array: Array) -> None:
        """Keep the numbers of a value whose type is noted, as long as there is room for them."""
        if array.nbytes > _SMALL_BYTES:
            if self._held + array.nbytes > _ALL_BYTES:
                return
            self._held += array.nbytes
        self.constants[value] = array

    def version(self, node: ir.Node, domain: str | None = None) -> int:
        """The opset that a node is written in; that of ``domain`` at the node's place where one is given."""
        graph = node.graph
        imports = graph.opset_imports if isinstance(graph, ir.Function) else self.model.graph.opset_imports
        domain = node.domain if domain is None else domain
        if domain in ("", "ai.onnx"):  # two spellings of one domain
            return int(imports.get("", imports.get("ai.onnx", 1)))
        return int(imports.get(domain, 1))
