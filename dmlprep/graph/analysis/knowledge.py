"""Known facts about the values of a model: types with shapes, and constants.

``Knowledge.swept`` takes types from onnx's inference over the whole graph, and reads or folds a constant on demand.
``shapes.Inference`` walks node by node instead: it refuses contradictions, and carries free sizes along.
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
"""Most bytes of a constant whose elements onnx's inference may read: shapes, axes and scales are a few numbers."""

_DEEPEST = 50  # nodes of shape arithmetic before one constant
_LARGEST = 1024  # most elements that are folded: shapes, axes and small masks, no weights
_MOST_AT_WORK = 4 * _LARGEST  # most elements that are read and written for them
_GROWING = frozenset({"Expand", "Pad", "Tile"})  # operators that make large outputs of small inputs are not folded


def dims_of(proto: onnx.TypeProto | None) -> tuple[Dim, ...] | None:
    """Return the dims of a tensor type; ``None`` where its rank is unknown or it is not a tensor."""
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else (d.dim_param or None)
        for d in proto.tensor_type.shape.dim
    )


def tensor_type(elem_type: int, dims: Sequence[Dim] | None) -> onnx.TypeProto:
    """Return a tensor type with an element type and dims; ``None`` as dims means an unknown rank."""
    return onnx.helper.make_tensor_type_proto(elem_type, dims)


def type_of(tensor: ir.TensorProtocol) -> onnx.TypeProto:
    """Return the type of a tensor."""
    return tensor_type(int(tensor.dtype), [int(d) for d in tensor.shape.numpy()])


def is_static(dims: Sequence[Dim] | None) -> bool:
    """Return True if the rank is known and every size is a number."""
    return dims is not None and all(isinstance(d, int) for d in dims)


def declared(value: ir.Value) -> onnx.TypeProto | None:
    """Return the declared type and shape of a value (``None`` if undeclared); for a constant, those of its tensor."""
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
    """Return the tensor of an initializer that no caller can replace, or of a Constant node; ``None`` for others."""
    if value is not None and value.is_initializer():
        # From IR 4 on, an initializer that is also an input is only a default: its numbers may change.
        return None if value.is_graph_input() and ir_version >= 4 else value.const_value
    node = value.producer() if value is not None else None
    return constant_tensor(node) if node is not None and node.op_type == "Constant" and not node.domain else None


def shape_numbers(node: ir.Node, dims: Sequence[Dim]) -> Array | None:
    """Return the result of a Shape or Size for ``dims``; ``None`` where it needs a free size."""
    if node.op_type == "Size":
        count = math.prod(d if isinstance(d, int) else 2**63 for d in dims)
        return np.array(count, np.int64) if count < 2**63 else None
    part = dims[node.attributes.get_int("start", 0) : node.attributes.get_int("end", len(dims))]
    return np.array(part, np.int64) if is_static(part) else None


@dataclass
class Knowledge:
    """Known facts about the values of one model; constants are read or computed on demand.

    Attributes:
        types: the type of each value that has one, shapes included.
        constants: the elements of each value that is a known, small constant.
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
        """Infer types with onnx over the whole graph; where onnx infers none, use the types that the model declares.

        Raises:
            ToolFailed: onnx crashes on the model, or needs more than its limits.
        """
        knowledge = cls(model)
        try:
            inferred = infer_shapes(frozen or model)
        except OnnxError:
            return knowledge
        knowledge._take(model.graph, inferred.graph, {})
        for value in (*model.graph.inputs, *model.graph.initializers.values()):
            knowledge.type(value)
        return knowledge

    def _take(self, graph: ir.Graph, proto: onnx.GraphProto, shared: dict[bytes, onnx.TypeProto]) -> None:
        """Store the types of a graph's values; ``shared`` are known types, by their bytes.

        Equal types are one object. So the answer of onnx, which has all nodes again, need not stay in memory.
        """
        named = {v.name: v.type for part in (proto.value_info, proto.input, proto.output) for v in part}
        for node, node_proto in zip(graph, proto.node, strict=True):
            for output in node.outputs:
                type_proto = named.get(output.name or "")
                if type_proto is not None:
                    self._set_shared(output, type_proto, shared)
            if node.attributes.data:
                self._take_bodies(node, node_proto, shared)

    def _set_shared(self, value: ir.Value, proto: onnx.TypeProto, shared: dict[bytes, onnx.TypeProto]) -> None:
        data = proto.SerializeToString()
        if data not in shared:
            shared[data] = onnx.TypeProto.FromString(data)
        if type_string(shared[data]):
            self.types[value] = shared[data]

    def take_bodies(self, node: ir.Node, proto: onnx.NodeProto) -> None:
        """Store the types of the values inside a node's subgraphs; ``proto`` is the same node after inference."""
        self._take_bodies(node, proto, {})

    def _take_bodies(self, node: ir.Node, proto: onnx.NodeProto, shared: dict[bytes, onnx.TypeProto]) -> None:
        for (_, sub), sub_proto in zip(attribute_graphs(node), bodies(proto), strict=True):
            for value, info in zip(sub.inputs, sub_proto.input, strict=True):
                self._set_shared(value, info.type, shared)
            self._take(sub, sub_proto, shared)

    # Types

    def type(self, value: ir.Value | None) -> onnx.TypeProto | None:
        """Return the value's type, ``None`` where it is not known."""
        proto = declared(value) if value is not None and value not in self.types else None
        if value is not None and proto is not None and type_string(proto):
            self.types[value] = proto
        return self.types.get(value) if value is not None else None

    def dtype(self, value: ir.Value | None) -> int:
        """Return the element type of a tensor (``onnx.TensorProto.FLOAT`` ...), 0 where it is not known."""
        proto = self.type(value)
        return proto.tensor_type.elem_type if proto is not None and proto.HasField("tensor_type") else 0

    def dims(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """Return the dims of a value, ``None`` where its rank is unknown."""
        return dims_of(self.type(value))

    def rank(self, value: ir.Value | None) -> int | None:
        """Return the number of dimensions of a value, ``None`` where it is unknown."""
        dims = self.dims(value)
        return None if dims is None else len(dims)

    def static_shape(self, value: ir.Value | None) -> list[int] | None:
        """Return the sizes of a value if all of them are numbers, otherwise ``None``."""
        sizes = [d for d in self.dims(value) or () if isinstance(d, int)]
        return sizes if len(sizes) == self.rank(value) else None

    def set_type(self, value: ir.Value, proto: onnx.TypeProto | None) -> None:
        """Set the type of a value, and drop other known facts about it."""
        self.constants.pop(value, None)
        self._asked.discard(value)
        if proto is None:
            self.types.pop(value, None)
        else:
            self.types[value] = proto

    def by_rule(
        self, schema: OpSchema, node: onnx.NodeProto, inputs: Sequence[ir.Value | None], opset: int
    ) -> dict[str, onnx.TypeProto]:
        """Return output name -> type by onnx's rule for the operator; empty if the type of an input is unknown.

        Raises:
            OnnxError: types or shapes contradict each other.
            ToolFailed: onnx crashes on the node, or needs more than its limits.
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
        """Return a graph of one node after onnx's inference; its outputs have the inferred types.

        Values that the node or its bodies read are inputs of the graph, or initializers if they are small constants.
        Values of unknown type are left out.

        Raises:
            OnnxError: onnx refuses the graph; with ``strict``, also where types or shapes contradict each other.
            ToolFailed: onnx crashes on the node, or needs more than its limits.
        """
        subgraphs = [graph for _, graph in attribute_graphs(node)]
        inner = [n for graph in subgraphs for n in graph.all_nodes()]
        local = {v for n in inner for v in n.outputs} | {v for graph in subgraphs for v in graph.inputs}
        proto = ir.serde.serialize_node(node)
        graph = onnx.GraphProto(name="alone", node=[proto])
        read = {v.name: v for n in (node, *inner) for v in n.inputs if v is not None and v.name and v not in local}
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
        """Return the elements of a small constant, stored or computed; ``None`` for other values."""
        if value is None:
            return None
        if value not in self._asked:
            self._asked.add(value)  # before it is read: a cyclic chain has no value
            array = self._read(value)
            if array is not None:
                self.constants[value] = array
        return self.constants.get(value)

    def _read(self, value: ir.Value) -> Array | None:
        node, tensor = value.producer(), constant_of(value, self.model.ir_version)
        if tensor is None and node is not None and not node.domain:
            return self.fold(node)
        if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes > HINT_BYTES:
            return None
        return np.asarray(tensor.numpy())

    def fold(self, node: ir.Node) -> Array | None:
        """Return the first output of a node of shape arithmetic (Shape, Gather, Concat ...), if its inputs are known.

        ``None`` otherwise, for Expand, Pad and Tile, for more than 1024 elements, and beyond the limits of computing.
        """
        if any(a.is_ref() for a in node.attributes.values()) or self._depth >= _DEEPEST:
            return None
        self._depth += 1
        try:
            array = self._folded(node)
        finally:
            self._depth -= 1
        return array if array is not None and array.size <= _LARGEST else None

    def _folded(self, node: ir.Node) -> Array | None:
        if node.op_type in ("Shape", "Size"):
            dims = self.dims(node.inputs[0] if node.inputs else None)
            return None if dims is None else shape_numbers(node, dims)
        op_type, read, attributes = node.op_type, list(node.inputs), plain_attributes(node)
        if op_type == "CastLike":
            if len(read) != 2:  # in a function's body the checker has not counted them
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
        """Return True if so many elements may still be computed, and subtract them from ``unfolded``.

        The limit exists because the author of a model chooses the sizes.
        """
        if elements > self.unfolded:
            return False
        self.unfolded -= elements
        return True


Element = Polynomial | None
Elements = tuple[bool, tuple[Element, ...]]
"""The facts about a small value: True for a vector, False for a scalar; and each element as far as it is known."""

_ALL_BYTES = 256 << 20  # limit for the large values in memory together; small ones do not count
_SMALL_BYTES = 4096
_WALKED, _WALKED_PER_NODE = 100_000, 64  # enough for three nested loops with four rounds each


@dataclass
class Known(Knowledge):
    """Known facts about the values of one model, only from the nodes walked so far.

    Attributes:
        partial: the elements of small integer values of which some are free sizes or unknown.
        assumed: values with a shape that only the model declares, because onnx does not define their operator.
        substitute: returns the size of a named dimension, or ``None`` if it stays free. It is used for shapes that are
            declared and cannot be inferred.
        walked: how many nodes were walked so far, those of bodies once for each round.
    """

    partial: dict[ir.Value, Elements] = field(default_factory=dict)
    assumed: set[ir.Value] = field(default_factory=set)
    substitute: Callable[[str], int | None] = field(default=lambda name: None)
    walked: int = 0
    _held: int = 0

    @cached_property
    def most_walked(self) -> int:
        """The most nodes to walk; after that, loop-carried shapes become unknown. Nested loops multiply the walks."""
        return _WALKED + _WALKED_PER_NODE * count_nodes(self.model)

    def type(self, value: ir.Value | None) -> onnx.TypeProto | None:
        """Return the type that the walk set, otherwise ``None``; unlike ``Knowledge``, it reads no declared type."""
        return self.types.get(value) if value is not None else None

    def constant(self, value: ir.Value | None) -> Array | None:
        """Return the elements of a value, ``None`` where they are not known; this class computes none on demand."""
        return self.constants.get(value) if value is not None else None

    def set_type(self, value: ir.Value, proto: onnx.TypeProto | None) -> None:
        """Set the type of a value, and drop other known facts about it."""
        super().set_type(value, proto)
        self.partial.pop(value, None)
        self.assumed.discard(value)

    def set_constant(self, value: ir.Value, array: Array) -> None:
        """Set the elements of a value, and its type from them."""
        elem = next(code for code, dtype in NUMPY_TYPES.items() if dtype == array.dtype)
        self.set_type(value, tensor_type(elem, array.shape))
        self.hold(value, array)

    def hold(self, value: ir.Value, array: Array) -> None:
        """Store the elements of a value whose type is set, unless the memory for large values is used up."""
        if array.nbytes > _SMALL_BYTES:
            if self._held + array.nbytes > _ALL_BYTES:
                return
            self._held += array.nbytes
        self.constants[value] = array

    def version(self, node: ir.Node, domain: str | None = None) -> int:
        """Return the opset version that the node's model or function imports for ``domain``; 1 if it imports none.

        By default, ``domain`` is the node's.
        """
        graph = node.graph
        imports = graph.opset_imports if isinstance(graph, ir.Function) else self.model.graph.opset_imports
        domain = node.domain if domain is None else domain
        if domain in ("", "ai.onnx"):  # two spellings of one domain
            return int(imports.get("", imports.get("ai.onnx", 1)))
        return int(imports.get(domain, 1))
