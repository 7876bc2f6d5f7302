"""Write new nodes to replace a lowered node."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import ArrayLike

from dmlprep.graph.analysis.knowledge import Knowledge, type_of
from dmlprep.graph.analysis.schemas import schema_at, type_string
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.texts import as_text
from dmlprep.graph.model.walk import attribute_graphs, label
from dmlprep.graph.rewriting.builder import GraphBuilder, as_attribute
from dmlprep.graph.rewriting.names import Names
from dmlprep.portable.arrays import Array
from dmlprep.process.onnx_worker.door import OnnxError

WRITTEN_AT = 18
"""The opset of new nodes by default. The nodes are then lowered, or relabelled, to the requested opset."""

_SMALL_BYTES = 4096

STANDS_AT = "\x00opset"
"""Metadata key on nodes of a subgraph that is copied into a function body. Its value is their opset, the caller's."""

T = onnx.TensorProto
"""A short name for ONNX's element types."""


class CannotLower(Exception):
    """A node cannot be lowered, for ``reason`` (a clause). The pass turns this into a refusal that names the node.

    Args:
        in_function: true if inlining may remove the reason. If the node is in a model-local function, the pass then
            inlines this function and tries again.
    """

    def __init__(self, reason: str, *, in_function: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.in_function = reason, in_function


def _content(array: Array) -> bytes:
    """A key for the content of an array: the bytes themselves, or their hash if the array is larger than 4 KiB."""
    return array.tobytes() if array.nbytes <= _SMALL_BYTES else hashlib.sha256(array.data).digest()


def attribute(node: ir.Node, name: str, default: object = None) -> Any:
    """The value of a node's attribute, or ``default`` if the node lacks it: strings as ``str``, lists as ``list``.

    Raises:
        CannotLower: the attribute refers to a parameter of a model-local function.
    """
    attr = node.attributes.get(name)
    if attr is None:
        return default
    if attr.is_ref():
        raise CannotLower(f"attribute {name!r} is a parameter of a model-local function", in_function=True)
    if attr.type == ir.AttributeType.STRING:
        return as_text(attr)
    if attr.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
        return list(attr.value)
    return attr.value


def input_of(node: ir.Node, index: int) -> ir.Value | None:
    """An input of a node; ``None`` if it is omitted."""
    return node.inputs[index] if index < len(node.inputs) else None


def value_range(dtype: int) -> tuple[float, float]:
    """The lowest and the highest number of an ONNX element type; minus and plus infinity for any type but integers."""
    kind = ir.DataType(dtype).numpy()
    return (np.iinfo(kind).min, np.iinfo(kind).max) if kind.kind in "iu" else (-np.inf, np.inf)


def default_of(schema: Any, name: str) -> Any:
    """The default value of the schema's attribute ``name``, strings as ``str``; ``None`` if it has no default."""
    default = schema.attributes[name].default_value
    value = onnx.helper.get_attribute_value(default) if default.type else None
    return value.decode() if isinstance(value, bytes) else value


class Builder(GraphBuilder):
    """Writes new nodes before ``node``, which they replace; onnx's type inference sets the types of new values.

    Attributes:
        values: known types and constants of the model's values.
        node: the node that is rewritten (lowered). The caller removes it.
        version: the opset of ``node``.
        target: the requested opset.
    """

    def __init__(
        self,
        node: ir.Node,
        version: int,
        target: int,
        values: Knowledge,
        names: Names,
        wrote: Callable[[ir.Node], None],
        budget: Budget | None = None,
    ) -> None:
        assert node.graph is not None
        super().__init__(node.graph, names, budget, f"node {label(node)!r}")
        self.node, self.version, self.target, self.values = node, version, target, values
        self._wrote = wrote
        self.base = node.name or label(node).replace("(", "_").replace(")", "")
        self._constants: dict[tuple[object, ...], ir.Value] = {}

    def value_name(self, wish: str) -> str:
        """Return a name that is not yet used, for a value or a node: ``wish`` after the name of the rewritten node."""
        return self.names.new(f"{self.base}/{wish}")

    def attr(self, name: str, default: object = None) -> Any:
        """The value of the node's attribute, otherwise its schema's default, otherwise ``default``.

        Raises:
            CannotLower: the attribute refers to a parameter of a model-local function.
        """
        value = attribute(self.node, name)
        if value is None:
            schema = schema_at(self.node.op_type, self.version, self.node.domain)
            value = default_of(schema, name) if schema is not None and name in schema.attributes else None
        return default if value is None else value

    def input(self, index: int) -> ir.Value | None:
        """The input at ``index`` of the node; ``None`` if it is omitted."""
        return input_of(self.node, index)

    def need(self, index: int) -> ir.Value:
        """The input at ``index``, which the schema requires.

        Raises:
            CannotLower: the node lacks this input.
        """
        value = self.input(index)
        if value is None:
            raise CannotLower(f"input {index} is missing")
        return value

    def asked(self, index: int) -> bool:
        """Return whether the node's output at ``index`` must be computed: it has a name or a reader."""
        return any(output.name or output.uses() for output in self.node.outputs[index : index + 1])

    def need_dtype(self, value: ir.Value) -> int:
        """The element type of a value, as a number of ``onnx.TensorProto``.

        Raises:
            CannotLower: the type is unknown.
        """
        dtype = self.values.dtype(value)
        if not dtype:
            raise CannotLower(f"the element type of {value.name!r} is unknown", in_function=True)
        return dtype

    def need_rank(self, value: ir.Value) -> int:
        """The rank of a value.

        Raises:
            CannotLower: the rank is unknown.
        """
        rank = self.values.rank(value)
        if rank is None:
            raise CannotLower(
                f"the rank of {value.name!r} is unknown: pin the free dimensions of the model", in_function=True
            )
        return rank

    def need_constant(self, value: ir.Value, what: str) -> Array:
        """The elements of a constant value; ``what`` names the value in the error.

        Raises:
            CannotLower: the elements are not known: the value is computed, a graph input, or a large constant.
        """
        array = self.values.constant(value)
        if array is None:
            raise CannotLower(
                f"{what} ({value.name!r}) is not a constant: pin the free dimensions and simplify first",
                in_function=True,
            )
        return array

    def whole_numbers(self, array: Array, what: str) -> list[int]:
        """The elements of an integer array as a flat list; ``what`` names the array in the error.

        Raises:
            CannotLower: the array is not of an integer type.
        """
        if array.dtype.kind not in "iu":
            raise CannotLower(f"{what} are of type {array.dtype}, not integers", in_function=True)
        return [int(number) for number in array.reshape(-1)]

    def const(self, array: ArrayLike) -> ir.Value:
        """A constant with the type of ``array``: an initializer, or a Constant node inside a model-local function.

        Equal constants of one builder are the same value.
        """
        data = np.array(array, order="C")
        return self.tensor(ir.tensor(data), data)

    def typed(self, array: ArrayLike, dtype: int) -> ir.Value:
        """A constant: ``array`` converted to the ONNX element type ``dtype``."""
        return self.const(np.asarray(array).astype(ir.DataType(dtype).numpy()))

    def like(self, array: ArrayLike, value: ir.Value) -> ir.Value:
        """A constant: ``array`` converted to the element type of ``value``."""
        return self.typed(array, self.need_dtype(value))

    def ints(self, *numbers: int) -> ir.Value:
        """A constant int64[n] with these numbers. Equal constants of one builder are the same value."""
        return self.const(np.array(numbers, np.int64))

    def scalar(self, number: int) -> ir.Value:
        """A constant: an int64 scalar."""
        return self.const(np.array(number, np.int64))

    def tensor(self, tensor: ir.TensorProtocol, known: Array | None = None) -> ir.Value:
        """A constant with the content of ``tensor``.

        If ``known``, the same content as an array, is given, equal constants of this builder share one value.
        """
        key = None if known is None else (known.dtype.str, known.dtype.name, known.shape, _content(known))
        if key is not None and key in self._constants:
            return self._constants[key]
        if isinstance(self.graph, ir.Graph):
            value = self.initializer(tensor, "constant")
        else:
            name = self.value_name("constant")
            node = ir.Node("", "Constant", [], {"value": ir.AttrTensor("value", tensor)}, name=name)
            value = node.outputs[0]
            value.name = self.names.new(f"{name}/output")
            self._insert(node, self.target)
        self.values.set_type(value, type_of(tensor))
        if key is not None:
            self._constants[key] = value
        return value

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Write a node, and return its first output; ``ops`` has the details."""
        return self.ops(op_type, *inputs, **attributes)[0]

    def ops(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        outputs: int = 1,
        version: int = WRITTEN_AT,
        domain: str = "",
        **attributes: object,
    ) -> list[ir.Value]:
        """Write a node at opset ``version``; an attribute that is ``None`` is left out.

        Returns:
            its outputs. If the operator is shape arithmetic with one small output that is known, no node is written,
            and the only output is a constant with the computed value.
        """
        attrs = [as_attribute(k, v) for k, v in attributes.items() if v is not None]
        return self.place(ir.Node(domain, op_type, list(inputs), attrs, num_outputs=outputs), version)

    def place(
        self, node: ir.Node, version: int | None, *, hint: str = "", asked: Sequence[bool] | None = None
    ) -> list[ir.Value]:
        """Insert ``node`` before the rewritten node, name it, and infer the types of its outputs.

        Args:
            version: the opset of ``node``; ``None`` for a node of another domain than ai.onnx.
            hint: the new name without its prefix (default: the operator).
            asked: for each output, whether it needs a name; an output that no node reads needs none. By default all
                outputs get names.

        Returns:
            the outputs of ``node``; a constant instead, if the node is folded (see ``ops``).

        Raises:
            CannotLower: onnx's type inference fails.
            ModelRefused: DP014, the model would exceed its limit of new nodes.
        """
        if not node.domain and len(node.outputs) == 1 and (folded := self.values.fold(node)) is not None:
            for i in range(len(node.inputs)):
                node.replace_input_with(i, None)
            return [self.const(folded)]
        node.name = self.value_name(hint or node.op_type)
        for i, output in enumerate(node.outputs):
            suffix = f"output_{i}" if len(node.outputs) > 1 else "output"
            output.name = self.names.new(f"{node.name}/{suffix}") if asked is None or asked[i] else ""
        self._insert(node, version)
        self._infer(node, version)
        return list(node.outputs)

    def _insert(self, node: ir.Node, version: int | None) -> None:
        if self._budget is not None:
            self._budget.spend(nodes=1, what="the replacement of its operators", where=self._where)
        self.graph.insert_before(self.node, node)
        for inner in (node, *(n for _, graph in attribute_graphs(node) for n in graph.all_nodes())):
            stands_at = inner.metadata_props.pop(STANDS_AT, None)
            inner.version = version if stands_at is None else int(stands_at)
            self._wrote(inner)

    def _infer(self, node: ir.Node, version: int | None) -> None:
        schema = schema_at(node.op_type, version) if not node.domain and version is not None else None
        if schema is None or version is None or any(a.is_ref() for a in node.attributes.values()):
            return
        if any(True for _ in attribute_graphs(node)):
            self._infer_bodies(node, version)
            return
        try:
            inferred = self.values.by_rule(schema, ir.serde.serialize_node(node), node.inputs, version)
        except OnnxError as error:
            raise CannotLower(f"onnx cannot infer types for its replacement: {error.line}") from error
        for output in node.outputs:
            proto = inferred.get(output.name or "")
            if proto is not None and type_string(proto):
                self.set_type(output, proto)

    def _infer_bodies(self, node: ir.Node, version: int) -> None:
        """Infer and set the types of the outputs of an If, Loop or Scan, and of the values in its subgraphs."""
        try:
            inferred = self.values.alone(node, {"": version}, strict=False)
        except OnnxError:
            return
        for value, info in zip((v for v in node.outputs if v.name), inferred.output, strict=True):
            if type_string(info.type):
                self.set_type(value, info.type)
        self.values.take_bodies(node, inferred.node[0])

    def set_type(self, value: ir.Value, proto: onnx.TypeProto) -> None:
        """Set the type and shape of a value, and record them in ``values``."""
        self.values.set_type(value, proto)
        value.type = ir.serde.deserialize_type_proto_for_type(proto)
        value.shape = ir.serde.deserialize_type_proto_for_shape(proto)

    def dim(self, value: ir.Value, axis: int) -> ir.Value:
        """The size of one dimension of a value, computed by a Shape node: int64[1]."""
        return self.op("Shape", value, start=axis, end=axis + 1 if axis != -1 else None)

    def transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Transpose ``value`` to the dimensions in ``order``; return ``value`` itself if the order is unchanged."""
        return value if list(order) == sorted(order) else self.op("Transpose", value, perm=list(order))

    def from_start(self, index: ir.Value, size: ir.Value | int) -> ir.Value:
        """Turn the int64 positions in ``index`` into positions from 0: ``size`` is added to the negative ones."""
        negative = self.op("Less", index, self.scalar(0))
        lifted = self.op("Add", index, self.scalar(size) if isinstance(size, int) else size)
        return self.op("Where", negative, lifted, index)

    def cast(self, value: ir.Value, dtype: int) -> ir.Value:
        """Cast ``value`` to an ONNX element type; return ``value`` itself if it has that type already."""
        return value if self.values.dtype(value) == dtype else self.op("Cast", value, to=int(dtype), version=13)

    def set_attr(self, **attributes: object) -> None:
        """Set attributes of the rewritten node in place; ``None`` removes an attribute."""
        for name, value in attributes.items():
            if value is None:
                self.node.attributes.pop(name, None)
            else:
                self.node.attributes[name] = as_attribute(name, value)

    def set_inputs(self, inputs: Sequence[ir.Value | None]) -> None:
        """Replace all inputs of the rewritten node in place; omitted inputs at the end are cut off."""
        self.node.resize_inputs(max((i for i, value in enumerate(inputs, 1) if value is not None), default=0))
        for i, value in enumerate(inputs[: len(self.node.inputs)]):
            if self.node.inputs[i] is not value:
                self.node.replace_input_with(i, value)

    def again(self, *inputs: ir.Value | None, version: int, **changed: object) -> list[ir.Value]:
        """Write a new node of the same operator at ``version``, with other inputs and changed attributes.

        An attribute in ``changed`` that is ``None`` is left out. Returns the outputs of the new node.
        """
        attributes: dict[str, Any] = {**self.node.attributes, **changed}
        return self.ops(self.node.op_type, *inputs, outputs=len(self.node.outputs), version=version, **attributes)


Step = Callable[[Builder], Sequence[ir.Value | None] | None]
"""A function that lowers a node below one version of its operator. Its argument is a builder for the node.

If the function returns ``None``, the node stays, as it is or after an edit in place. The caller then handles types that
the older version lacks. Otherwise the function has written new nodes, and returns replacements for the node's outputs
(``None`` for an unused output). It raises ``CannotLower`` if the node has no older form, or if a fact is unknown."""

Steps = dict[tuple[str, int], Step]
"""Map from (operator, version) to the step that lowers a node of that version to the version before."""
