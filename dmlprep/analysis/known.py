"""What is known of the values of one model: the state of shape inference, which its rules read and fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from dmlprep.analysis.folding import NUMPY_TYPES, Array
from dmlprep.analysis.polynomial import Polynomial
from dmlprep.model.dims import Dim

__all__ = ["Element", "Elements", "Known", "declared", "dims_of", "is_static", "tensor_type"]

Element = Polynomial | None
Elements = tuple[bool, tuple[Element, ...]]
"""Whether the value is a vector (else a scalar), and what is known of each element."""

_ALL_BYTES = 256 << 20  # of all values together that are held at once; small ones are held beyond it
_SMALL_BYTES = 4096


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


def is_static(dims: Sequence[Dim] | None) -> bool:
    """Whether every size is a number."""
    return dims is not None and all(isinstance(d, int) for d in dims)


def declared(value: ir.Value) -> onnx.TypeProto | None:
    """The type that the model writes for a value; for a constant, that of its tensor."""
    tensor = value.const_value
    if tensor is not None:
        return tensor_type(int(tensor.dtype), [int(d) for d in tensor.shape.numpy()])
    if value.type is None:
        return None
    proto = ir.serde.serialize_type(value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(proto, value.shape)
    return proto


@dataclass
class Known:
    """What is known of the values of one model.

    Attributes:
        types: the type of each value that has one, shapes included.
        constants: the values that are known numbers; those of large tensors are not read.
        partial: small integer values of which some elements are free sizes.
        assumed: values whose shape is only declared by the model: their operator is not onnx's.
        substitute: the size of a named dimension, for what is declared and cannot be inferred.
        walks: how many graphs were walked so far, bodies once for each round.
    """

    model: ir.Model
    types: dict[ir.Value, onnx.TypeProto] = field(default_factory=dict)
    constants: dict[ir.Value, Array] = field(default_factory=dict)
    partial: dict[ir.Value, Elements] = field(default_factory=dict)
    assumed: set[ir.Value] = field(default_factory=set)
    substitute: Callable[[str], int | None] = field(default=lambda name: None)
    walks: int = 0
    _held: int = 0

    def dims(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """Dims of a value, ``None`` where its rank is unknown."""
        return dims_of(self.types.get(value)) if value is not None else None

    def set_type(self, value: ir.Value, proto: onnx.TypeProto | None) -> None:
        """Note what type a value has; whatever was known of it is forgotten."""
        self.constants.pop(value, None)
        self.partial.pop(value, None)
        self.assumed.discard(value)
        if proto is None:
            self.types.pop(value, None)
        else:
            self.types[value] = proto

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
