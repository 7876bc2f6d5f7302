"""What is known of the model's values while it is rewritten: types, shapes, small constants."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir

from dmlprep.analysis.attributes import constant_tensor, plain_attributes
from dmlprep.analysis.folding import EVALUATORS, NUMPY_TYPES, Array, evaluate
from dmlprep.analysis.known import tensor_type
from dmlprep.analysis.schemas import NEWEST, type_string
from dmlprep.model import Model
from dmlprep.model.checking import infer_shapes
from dmlprep.model.dims import Dim
from dmlprep.model.walk import attribute_graphs

__all__ = ["Values"]

_CONSTANT_BYTES = 4096  # axes, sizes, scales; what is larger is a weight, and stays unread
_DEEPEST = 50  # nodes of shape arithmetic behind one constant
_LARGEST = 1024  # elements that are folded: shapes, axes and masks' corners, no weights
_MADE = frozenset({"ConstantOfShape", "Range"})
_GROWING = frozenset({"Expand", "Pad", "Tile"})  # what makes much of little stays a node


def _of_value(value: ir.Value) -> onnx.TypeProto | None:
    if value.type is None:
        tensor = value.const_value
        return None if tensor is None else tensor_type(tensor.dtype.value, tensor.shape.numpy())
    info = ir.serde.serialize_value(value, name=value.name or "x")
    return info.type if type_string(info.type) else None


class Values:
    """Types and constants of a model's values.

    Args:
        model: the model before it is rewritten; shape inference runs on it once, without its weights.
    """

    def __init__(self, model: Model) -> None:
        self._types: dict[ir.Value, onnx.TypeProto | None] = {}
        self._constants: dict[ir.Value, Array | None] = {}
        self._depth = 0
        self._seen: frozenset[str] | None = None
        try:
            inferred = infer_shapes(model.ir)
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
            return
        self._take(model.ir.graph, inferred.graph)
        for graph_input in (*model.ir.graph.inputs, *model.ir.graph.initializers.values()):
            self.type(graph_input)

    def _take(self, graph: ir.Graph, proto: onnx.GraphProto) -> None:
        named = {v.name: v.type for part in (proto.value_info, proto.input, proto.output) for v in part}
        for node, node_proto in zip(graph, proto.node, strict=True):
            for output in node.outputs:
                found = named.get(output.name or "")
                if found is not None and type_string(found):
                    self._types[output] = found
            self.take_bodies(node, node_proto)

    def take_bodies(self, node: ir.Node, proto: onnx.NodeProto) -> None:
        """Take the types of the values inside a node's subgraphs from the same node after inference."""
        protos = [g for a in proto.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]
        for (_, sub), sub_proto in zip(attribute_graphs(node), protos, strict=True):
            for value, info in zip(sub.inputs, sub_proto.input, strict=True):
                if type_string(info.type):
                    self._types[value] = info.type
            self._take(sub, sub_proto)

    def seen(self) -> frozenset[str]:
        """Every type that some value of the model is known to have."""
        if self._seen is None:
            self._seen = frozenset(type_string(t) for t in self._types.values() if t is not None)
        return self._seen

    def note(self, value: ir.Value, proto: onnx.TypeProto | None) -> None:
        """Remember the type of a new value."""
        self._types[value] = proto

    def type(self, value: ir.Value | None) -> onnx.TypeProto | None:
        """The value's type, ``None`` where it is not known."""
        if value is None:
            return None
        if value not in self._types:
            self._types[value] = _of_value(value)
        return self._types[value]

    def dtype(self, value: ir.Value | None) -> int:
        """The element type of a tensor (``onnx.TensorProto.FLOAT`` ...), 0 where it is not known."""
        proto = self.type(value)
        return proto.tensor_type.elem_type if proto is not None and proto.HasField("tensor_type") else 0

    def shape(self, value: ir.Value | None) -> list[Dim] | None:
        """The dimensions, ``None`` where not even the rank is known."""
        proto = self.type(value)
        if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
            return None
        return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in proto.tensor_type.shape.dim]

    def rank(self, value: ir.Value | None) -> int | None:
        """The number of dimensions."""
        shape = self.shape(value)
        return None if shape is None else len(shape)

    def static_shape(self, value: ir.Value | None) -> list[int] | None:
        """The dimensions where all of them are fixed."""
        shape = self.shape(value)
        if shape is None or not all(isinstance(d, int) for d in shape):
            return None
        return [int(d) for d in shape if isinstance(d, int)]

    def constant(self, value: ir.Value | None) -> Array | None:
        """The elements of a small constant, ``None`` for everything else."""
        if value is None:
            return None
        if value not in self._constants:
            self._constants[value] = None  # until it is read: a chain that comes back to itself has no value
            self._constants[value] = self._read(value)
        return self._constants[value]

    def _read(self, value: ir.Value) -> Array | None:
        node = value.producer()
        tensor: ir.TensorProtocol | None = None
        if value.is_initializer() and not value.is_graph_input():
            tensor = value.const_value
        elif node is not None and node.domain in ("", "ai.onnx"):
            if node.op_type != "Constant":
                return self.fold(node)
            tensor = constant_tensor(node)
        if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes > _CONSTANT_BYTES:
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
        first = node.inputs[0] if node.inputs else None
        if node.op_type == "Size":
            sizes = self.static_shape(first)
            return None if sizes is None else np.array(np.prod(sizes, dtype=np.int64), np.int64)
        if node.op_type == "Shape":
            dims = self.shape(first)
            if dims is None:
                return None
            part = dims[node.attributes.get_int("start", 0) : node.attributes.get_int("end", None)]
            return np.array(part, np.int64) if all(isinstance(d, int) for d in part) else None
        op_type, read, attributes = node.op_type, list(node.inputs), plain_attributes(node)
        if op_type == "CastLike":
            op_type, read, attributes = "Cast", read[:1], {"to": self.dtype(read[1])}
        if op_type not in EVALUATORS or op_type in _GROWING:
            return None
        known = [self.constant(value) for value in read]
        arrays = [a for a in known if a is not None and a.size <= _LARGEST and a.dtype in NUMPY_TYPES.values()]
        if len(arrays) < len(read) or (op_type in _MADE and _made(op_type, arrays) > _LARGEST):
            return None
        found = evaluate(op_type, NEWEST, arrays, attributes, len(node.outputs))
        return found[0] if found else None


def _made(op_type: str, inputs: list[Array]) -> float:
    """How many elements a node makes whose inputs are numbers of elements; asked before it makes them."""
    numbers = [float(n) for array in inputs for n in array.reshape(-1)]
    if op_type == "Range":
        return abs((numbers[1] - numbers[0]) / numbers[2]) if len(numbers) == 3 and numbers[2] else 0
    return math.prod(numbers)
