"""What is known of the model's values while it is rewritten: types, shapes, small constants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from dmlprep.model import Model
from dmlprep.model.checking import infer_shapes
from dmlprep.model.walk import attribute_graphs

__all__ = ["Dim", "Values", "tensor_type", "type_string"]

Dim = int | str | None
"""One dimension: its size, its name, or nothing known."""

_CONSTANT_BYTES = 4096  # axes, sizes, scales; what is larger is a weight, and stays unread
_DEEPEST = 50  # nodes of shape arithmetic behind one constant
_KINDS = {v: k.lower() for k, v in onnx.TensorProto.DataType.items()}


def type_string(proto: onnx.TypeProto) -> str:
    """The type as schemas write it (``tensor(float)``, ``seq(tensor(int64))``); empty where it is not known."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        name = _KINDS.get(proto.tensor_type.elem_type, "")
        return f"tensor({name})" if name and name != "undefined" else ""
    if kind in ("sequence_type", "optional_type"):
        inner = type_string(getattr(proto, kind).elem_type)
        return f"{'seq' if kind == 'sequence_type' else 'optional'}({inner})" if inner else ""
    return ""


def tensor_type(dtype: int, shape: Iterable[Dim] | None) -> onnx.TypeProto:
    """A tensor's TypeProto."""
    return onnx.helper.make_tensor_type_proto(dtype, None if shape is None else list(shape))


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
        self._constants: dict[ir.Value, np.ndarray[Any, Any] | None] = {}
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

    def constant(self, value: ir.Value | None) -> np.ndarray[Any, Any] | None:
        """The elements of a small constant, ``None`` for everything else."""
        if value is None:
            return None
        if value not in self._constants:
            self._constants[value] = None  # until it is read: a chain that comes back to itself has no value
            self._constants[value] = self._read(value)
        return self._constants[value]

    def _read(self, value: ir.Value) -> np.ndarray[Any, Any] | None:
        from dmlprep.passes.opset.folding import fold  # it asks this class for the inputs' values

        tensor: ir.TensorProtocol | None = None
        if value.is_initializer() and not value.is_graph_input():
            tensor = value.const_value
        else:
            node = value.producer()
            if node is not None and node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                for name, attribute in node.attributes.items():
                    if attribute.is_ref() or name.startswith("value_string") or name == "sparse_value":
                        return None
                    if name == "value":
                        tensor = attribute.as_tensor()
                    elif name.startswith("value_"):
                        kind = np.float32 if "float" in name else np.int64
                        return np.array(attribute.value, kind)
            if tensor is None and node is not None and node.domain in ("", "ai.onnx") and self._depth < _DEEPEST:
                self._depth += 1
                try:
                    return fold(node, self)
                finally:
                    self._depth -= 1
        if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes > _CONSTANT_BYTES:
            return None
        return np.asarray(tensor.numpy())
