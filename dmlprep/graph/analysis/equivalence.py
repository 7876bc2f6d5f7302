"""Compare two models by their graphs alone: do they compute the same?

Every value gets a number (value numbering; Cocke and Schwartz, "Programming languages and their compilers", 1970).
Values of both models that come from the same inputs by the same operators have the same number. The models' inputs
match by name. Other names, and the order of nodes, do not count. A constant may be an initializer, a Constant node, or
arithmetic on constants that ``folding`` computes to the same bits. A node that returns its input (Identity, a product
with ones, a Reshape to the same shape) has the number of that input.

Equal numbers prove equal values, up to one sign: x + 0 counts as x, although it differs where x is -0. Different
numbers prove nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir

from dmlprep.core.errors import ToolFailed
from dmlprep.graph.analysis.attributes import constant_tensor, plain_attributes
from dmlprep.graph.analysis.folding import EVALUATORS, NUMPY_TYPES, evaluate
from dmlprep.graph.analysis.knowledge import dims_of, is_static
from dmlprep.graph.analysis.schemas import schema_at
from dmlprep.graph.model import Frozen, Model, protos
from dmlprep.graph.model.checking import infer_shapes
from dmlprep.graph.model.random_ops import draws
from dmlprep.graph.model.tensors import as_mapped
from dmlprep.graph.model.walk import nodes
from dmlprep.portable.arrays import Array
from dmlprep.process.onnx_worker.door import OnnxError

_READ = 1 << 20
"""Most bytes of a tensor in memory whose elements are compared. A larger one equals only itself."""

_MAPPED = 4 << 10
"""Most bytes of a tensor in a file whose elements are compared. A larger one equals only the same place in the file."""

_FOLDED = 1 << 18
"""Most elements of one computed constant."""

_ALL_FOLDED = 1 << 24
"""Most elements of all computed constants."""

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)

_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic

_Type = tuple[int, tuple[int, ...] | None]
"""Element type of a tensor, and its shape where every size is known."""


class _Untold(Exception):
    """Raised for a value that gets no number."""


def compute_the_same(one: Model, other: Model) -> bool:
    """Return True if the graphs show that ``other`` returns the outputs of ``one``, by position, on all inputs.

    Inputs are matched by name. Functions are assumed to be the same in both, and so are the opsets, and operators of
    the same name and domain. The result is False where a node draws random numbers, or a caller may replace a constant.
    """
    if any(draws(node) for model in (one, other) for node in nodes(model.ir)):
        return False
    known = _REPLACEABLE | {node.op_type for node in nodes(one.ir)}
    new = (value for node in nodes(other.ir) if node.op_type not in known for value in node.outputs)
    if any(value.uses() or value.is_graph_output() for value in new):
        return False  # without numbers for thousands of values
    try:
        table = _Table()
        if _outputs(one, table, {}) == _outputs(other, table, {}):
            return True
        types = [_types(model.snapshot()) for model in (one, other)]
        return _outputs(one, table, types[0]) == _outputs(other, table, types[1])
    except (_Untold, OnnxError, ToolFailed):
        return False


def _types(frozen: Frozen) -> dict[str, _Type]:
    """Return types of the main graph's values, inferred from its inputs; other declared types are ignored."""
    proto = protos.copy(frozen.proto)
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    graph = infer_shapes(Frozen(proto, frozen.tensors)).graph
    types: dict[str, _Type] = {}
    for value in (*graph.input, *graph.output, *graph.value_info):
        if elem_type := value.type.tensor_type.elem_type:
            sizes = tuple(d for d in dims_of(value.type) or () if isinstance(d, int))
            types[value.name] = elem_type, sizes if is_static(dims_of(value.type)) else None
    return types


@dataclass
class _Table:
    """The numbers of all values, by keys that describe how a value is computed, and the elements of constants.

    ``fold_budget`` is the number of elements that may still be computed.
    ``reshaped`` maps the number of a Reshape's output to the number and the shape of its input; of several in a
    row, the input of the first.
    """

    numbers: dict[Hashable, int] = field(default_factory=dict)
    constants: dict[int, Array] = field(default_factory=dict)
    reshaped: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    fold_budget: int = _ALL_FOLDED

    def number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def array(self, array: Array, dtype: ir.DataType) -> int:
        """Return the number of a constant whose elements are known."""
        data = np.ascontiguousarray(array).tobytes()
        number = self.number(("constant", dtype, array.shape, hashlib.sha256(data).digest()))
        if array.size <= _FOLDED and array.dtype in NUMPY_TYPES.values():
            self.constants[number] = array
        return number

    def tensor(self, tensor: ir.TensorProtocol) -> int:
        mapped, shape = as_mapped(tensor), tuple(tensor.shape.numpy())
        if mapped is not None and tensor.nbytes > _MAPPED:
            return self.number(("file", str(mapped.path), mapped.offset, mapped.length, tensor.dtype, shape))
        if tensor.nbytes > _READ:
            return self.number(("object", id(tensor)))  # both models keep it alive meanwhile
        if isinstance(tensor, ir.StringTensor) or tensor.dtype == ir.DataType.STRING:
            return self.number(("text", shape, tuple(np.asarray(tensor.numpy()).reshape(-1).tolist())))
        return self.array(np.asarray(tensor.numpy()), tensor.dtype)


def _outputs(model: Model, table: _Table, types: Mapping[str, _Type]) -> list[int]:
    graph = model.ir.graph
    if any(value in graph.inputs for value in graph.initializers.values()) and model.ir.ir_version >= 4:
        raise _Untold  # a default that a caller may replace
    reader = _Reader(table, model.opset, types)
    weights = graph.initializers
    for value in graph.inputs:
        if value.name not in weights:
            reader.known[value] = table.number(("input", value.name))
    return reader.graph(graph, 0)


class _Reader:
    """Gives numbers to the values of one model.

    Without ``types`` of the main graph, only an Identity, or a Concat of one input, has the number of its input.
    """

    def __init__(self, table: _Table, opset: int, types: Mapping[str, _Type]) -> None:
        self._table, self._opset, self._types = table, opset, types
        self.known: dict[ir.Value, int] = {}

    def graph(self, graph: ir.Graph, depth: int) -> list[int]:
        """Return the numbers of a graph's outputs; its inputs have numbers already."""
        for value in graph.initializers.values():
            if value.const_value is not None:
                self.known[value] = self._table.tensor(value.const_value)
        for node in graph:
            self._node(node, depth)
        return [self._of(value) for value in graph.outputs]

    def _of(self, value: ir.Value | None) -> int:
        if value is None or not value.name:
            return -1
        if value not in self.known:
            raise _Untold
        return self.known[value]

    def _node(self, node: ir.Node, depth: int) -> None:
        tensor = constant_tensor(node) if node.op_type == "Constant" and not node.domain else None
        if tensor is not None:
            self.known[node.outputs[0]] = self._table.tensor(tensor)
            return
        read = [self._of(value) for value in node.inputs]
        if node.op_type in ("GRU", "LSTM", "RNN") and not node.domain:
            # "Optional initial value of the hidden. If not specified - assumed to be 0" (ONNX operators, LSTM).
            read[5:7] = [-1 if self._is(number, 0) else number for number in read[5:7]]
        while read and read[-1] < 0:
            read.pop()
        if not node.domain:
            if self._folded(node, read):
                return
            same = self._moved(node, read, depth)
            if same is not None:
                self.known[node.outputs[0]] = same
                return
        attributes = tuple(sorted(self._attributes(node, depth)))
        key = (node.domain, node.op_type, node.overload, attributes, tuple(read), tuple(self._present(node)))
        for index, value in enumerate(node.outputs):
            self.known[value] = self._table.number((*key, index))

    def _attributes(self, node: ir.Node, depth: int) -> Iterator[tuple[str, Hashable]]:
        for name, attr in node.attributes.items():
            if attr.is_ref():
                raise _Untold
            if attr.type in _GRAPHS:
                graphs = [attr.as_graph()] if attr.type == ir.AttributeType.GRAPH else list(attr.as_graphs())
                yield name, tuple(self._body(graph, depth + 1) for graph in graphs)
            elif attr.type == ir.AttributeType.TENSOR:
                yield name, ("tensor", self._table.tensor(attr.value))
            else:
                # The serialized bytes distinguish -0.0 from 0.0, and exist for all types.
                proto = ir.serde.serialize_attribute(ir.Attr(name, attr.type, attr.value))
                yield name, ("plain", proto.SerializeToString(deterministic=True))

    def _body(self, graph: ir.Graph, depth: int) -> Hashable:
        """Return a key of a subgraph that ignores its values' names; depth and position identify its inputs."""
        for index, value in enumerate(graph.inputs):
            self.known[value] = self._table.number(("bound", depth, index))
        return len(graph.inputs), tuple(self.graph(graph, depth))

    def _folded(self, node: ir.Node, read: Sequence[int]) -> bool:
        """Compute arithmetic on constants and number its outputs by their elements; return whether it was possible."""
        arrays = [self._table.constants.get(number) for number in read]
        if node.op_type not in EVALUATORS or not arrays or any(array is None for array in arrays):
            return False
        most = min(_FOLDED, self._table.fold_budget)
        attributes, count = plain_attributes(node), len(node.outputs)
        results = evaluate(node.op_type, self._opset, arrays, attributes, count, lambda elements: elements <= most)
        for value, array in zip(node.outputs, results or (), strict=results is not None):
            self._table.fold_budget -= array.size
            self.known[value] = self._table.array(array, ir.DataType.from_numpy(array.dtype))
        return results is not None

    def _present(self, node: ir.Node) -> list[bool]:
        """Return a flag for each output up to the last that counts: True if the output counts.

        An unused output does not count, unless the operator has any number of outputs (Split) or no schema in onnx.
        """
        schema = schema_at(node.op_type, self._opset) if not node.domain else None
        fixed = schema is not None and all(o.option != _VARIADIC for o in schema.outputs)
        present = [bool(v.name) and (not fixed or bool(v.uses()) or v.is_graph_output()) for v in node.outputs]
        while present and not present[-1]:
            present.pop()
        return present

    def _moved(self, node: ir.Node, read: Sequence[int], depth: int) -> int | None:
        """Return the number of the input whose elements the node returns unchanged, or ``None``."""
        if len(node.outputs) != 1 or not read:
            return None
        if node.op_type == "Identity" or (node.op_type == "Concat" and len(read) == 1):
            return read[0]
        out = self._types.get(node.outputs[0].name or "") if not depth else None
        if out is None or out[1] is None:
            return None
        if node.op_type in _RESHAPES:
            return self._reshaped(node, read[0], out[1])
        for place in _SAME.get(node.op_type, ()):
            source = node.inputs[place] if place < len(read) else None
            if source is None or self._type(source) != out:
                continue
            neutral = _NEUTRAL.get(node.op_type)
            if neutral is None or (len(read) == 2 and self._is(read[1 - place], neutral)):
                return read[place]
        return None

    def _reshaped(self, node: ir.Node, read: int, shape: tuple[int, ...]) -> int | None:
        """Return the number for the elements of value ``read`` in another shape, or ``None`` if its shape is unknown.

        Of several Reshapes in a row only the last counts.
        """
        source = node.inputs[0]
        known = self._type(source) if source is not None else None
        if known is None or known[1] is None:
            return None
        root, was = self._table.reshaped.get(read, (read, known[1]))
        if shape == was:
            return root
        number = self._table.number(("reshaped", root, shape))
        self._table.reshaped[number] = (root, was)
        return number

    def _type(self, value: ir.Value) -> _Type | None:
        tensor = value.const_value
        if tensor is not None:
            return int(tensor.dtype), tuple(tensor.shape.numpy())
        return self._types.get(value.name or "")

    def _is(self, number: int, wanted: int) -> bool:
        """Return True if a value is a constant whose every element is ``wanted``."""
        array = self._table.constants.get(number)
        return array is not None and bool((array == wanted).all())


_RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")

_SAME = {"Add": (0, 1), "Cast": (0,), "Div": (0,), "Expand": (0,), "Mul": (0, 1), "Sub": (0,)}
"""Operator -> positions of inputs that it may return unchanged.

It does if the input has the output's type and shape, and the other input is neutral (``_NEUTRAL``).
"""

_NEUTRAL = {"Add": 0, "Div": 1, "Mul": 1, "Sub": 0}

_REPLACEABLE = {"Constant", *_RESHAPES, *_SAME, *EVALUATORS}
"""Operators whose values may equal those of a model without them; any other new operator gives new values."""
