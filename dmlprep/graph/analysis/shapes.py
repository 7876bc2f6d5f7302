"""Infer types and shapes of every value, node by node, and compute shape arithmetic on the way.

onnx infers one node (``calls.infer_node``). This walk visits the graph in order, passes each node the types and small
constants that reach it, and enters the bodies of If, Loop and Scan itself. It does not read weights: only type and
dims are known of a tensor over ``CONSTANT_BYTES``, or over ``HINT_BYTES`` if it is not int32, int64 or bool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import onnx
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.analysis import contradictions, contrib, flow, symbolic
from dmlprep.graph.analysis.attributes import constant_tensor, plain_attributes
from dmlprep.graph.analysis.folding import EVALUATORS, NUMPY_TYPES, Uncertain, evaluate, slice_of
from dmlprep.graph.analysis.knowledge import (
    HINT_BYTES,
    Known,
    constant_of,
    declared,
    dims_of,
    shape_numbers,
    tensor_type,
    type_of,
)
from dmlprep.graph.analysis.polynomial import ANONYMOUS
from dmlprep.graph.analysis.schemas import schema_at, schema_of, type_constraints, type_parameters
from dmlprep.graph.model.bounds import beyond_bounds
from dmlprep.graph.model.dims import Dim, with_dims
from dmlprep.graph.model.walk import GraphLike, attribute_graphs, label, main_graphs
from dmlprep.process.onnx_worker.door import OnnxError

CONSTANT_BYTES = 1 << 20
"""Most bytes of an integer or boolean value that is computed (a 512 x 512 mask of int32)."""

FLOAT_BYTES = 1 << 18


@dataclass
class Inference(Known):
    """The inferred types, shapes and constants of a model, and the walk over its nodes that infers them."""

    @cached_property
    def _functions(self) -> list[onnx.FunctionProto]:
        return [ir.serde.serialize_function(f) for f in self.model.functions.values()]

    @classmethod
    def of(cls, model: ir.Model, substitute: Callable[[str], int | None] | None = None) -> Inference:
        """Infer every value of a model's main graph and its subgraphs, without changing the model.

        ``substitute`` returns the size of a named dimension, ``None`` if it stays free; it is used for declared shapes
        that cannot be inferred.

        Raises:
            ModelRefused: DP202, shapes contradict each other; DP016, an output is beyond the limits of sizes. ``where``
                names the node.
            ToolFailed: onnx crashes on a node, or needs more than its limits.
        """
        inference = cls(model, substitute=substitute or (lambda name: None))
        for value in model.graph.inputs:
            proto = declared(value)
            for dim in proto.tensor_type.shape.dim if proto is not None and proto.HasField("tensor_type") else ():
                if dim.dim_param in ANONYMOUS and dim.HasField("dim_param"):
                    dim.ClearField("dim_param")  # two of these may be different sizes
            inference.set_type(value, proto)
        inference.walk(model.graph)
        return inference

    def walk(self, graph: GraphLike, depth: int = 0) -> None:
        """Infer all nodes of a graph whose inputs are already known; ``depth`` bodies enclose it.

        Raises:
            ModelRefused, ToolFailed: as ``visit``.
        """
        self.walked += len(graph)
        for value in graph.initializers.values() if isinstance(graph, ir.Graph) else ():
            if value.const_value is not None:
                self._set_tensor(value, value.const_value)
        for node in graph:
            self.visit(node, depth)

    def _set_tensor(self, value: ir.Value, tensor: ir.TensorProtocol) -> None:
        self.set_type(value, type_of(tensor))
        if constant_of(value, self.model.ir_version) is None:
            return
        dtype = NUMPY_TYPES.get(int(tensor.dtype))
        # Larger int8 and int16 tensors and larger floats are weights: shapes do not depend on them.
        most = CONSTANT_BYTES if dtype is not None and dtype.name in ("int32", "int64", "bool") else HINT_BYTES
        if dtype is not None and tensor.nbytes <= most:
            array = np.asarray(tensor.numpy())
            self.hold(value, array.copy() if array.nbytes <= HINT_BYTES else array)

    def visit(self, node: ir.Node, depth: int = 0) -> None:
        """Infer the outputs of one node, and those inside its bodies; ``depth`` bodies enclose it.

        Raises:
            ModelRefused: DP202, shapes contradict each other; DP016, an output is beyond the limits of sizes.
            ToolFailed: onnx crashes on the node, or needs more than its limits.
        """
        if not node.domain:
            tensor = constant_tensor(node) if node.op_type == "Constant" else None
            if tensor is not None:
                for output in node.outputs[:1]:  # a Constant without outputs is invalid; other code reports it
                    self._set_tensor(output, tensor)
                return
            if node.op_type in flow.BODIES and flow.infer(self, node, depth, self.walk):
                return
        types = self._by_onnx(node)
        _clear_doubtful(self, node, types)
        for output in node.outputs:
            proto = types.get(output.name or "")
            if proto is not None and proto.WhichOneof("value") is not None:
                self._hold_to_bounds(node, proto)
                self.set_type(output, proto)
            else:
                self._assume(output)
        standard = not node.domain and all(not a.is_ref() for a in node.attributes.values())
        if standard and node.outputs:
            self._refine(node)
            why = contradictions.contradiction(self, node) if node.inputs else ""
            if why:
                raise self._contradiction(node, why)
            self._fold(node)

    def _hold_to_bounds(self, node: ir.Node, proto: onnx.TypeProto) -> None:
        if wrong := beyond_bounds([d if isinstance(d, int) else 1 for d in dims_of(proto) or ()]):
            fix = "set smaller sizes for its free dimensions"
            raise ModelRefused(wrong, where=f"node {label(node)}", code="DP016", fix=fix)

    def _refine(self, node: ir.Node) -> None:
        """Infer sizes of the first output that onnx misses, from shape values with free sizes."""
        proto = self.types.get(node.outputs[0])
        dims = dims_of(proto)
        if proto is None or not proto.HasField("tensor_type") or (dims is not None and None not in dims):
            return
        elements = symbolic.refined(self, node)
        if elements is None or (dims is not None and len(dims) != len(elements)):
            return
        new: list[Dim] = [(f.number if f.number is not None else str(f)) if f is not None else None for f in elements]
        if any(isinstance(d, int) and d < 0 for d in new):
            return
        if dims is not None:
            new = [d if d is not None else n for d, n in zip(dims, new, strict=True)]
        self.set_type(node.outputs[0], tensor_type(proto.tensor_type.elem_type, new))

    def _assume(self, output: ir.Value) -> None:
        """Set the type of an output that cannot be inferred to its declared type, with pinned names as numbers."""
        proto = declared(output)
        self.set_type(output, proto)
        if proto is None or dims_of(proto) is None:
            return
        for dim in proto.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < 0:
                dim.ClearField("dim_value")
            size = self.substitute(dim.dim_param) if dim.dim_param else None
            if size is not None:
                dim.dim_value = size
        self.assumed.add(output)

    def _by_onnx(self, node: ir.Node) -> dict[str, onnx.TypeProto]:
        if (node.domain, node.op_type, node.overload) in self.model.functions:
            return self._by_model(node)
        proto = contrib.unfused(node) or ir.serde.serialize_node(node)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        version = self.version(node, domain)
        schema = schema_of(domain, proto.op_type, version)
        if schema is None:
            outputs = zip(node.outputs, contrib.infer(self, node), strict=False)
            return {v.name or "": tensor_type(*output) for v, output in outputs if output is not None and output[0]}
        try:
            types = self.by_rule(schema, proto, node.inputs, version)
        except OnnxError as error:
            raise self._contradiction(node, str(error)) from error
        with_body = any(getattr(schema, f"has_{kind}", False) for kind in ("function", "context_dependent_function"))
        if with_body and (not types or None in map(dims_of, types.values())):
            # LessOrEqual-12 and others have a body that infers more than their own rule.
            with suppress(ModelRefused):  # onnx cannot read its own body of MeanVarianceNormalization-13
                return self._by_model(node) or types
        return types

    def _by_model(self, node: ir.Node) -> dict[str, onnx.TypeProto]:
        """Return output name -> type of a node with a function body, inferred by onnx in a model of this one node.

        Empty if the type of an input is unknown.

        Raises:
            ModelRefused: DP202, shapes contradict each other.
        """
        if any(v not in self.types for v in node.inputs if v is not None):
            return {}
        try:
            done = self.alone(node, self.model.graph.opset_imports, self._functions, strict=True)
        except OnnxError as error:
            raise self._contradiction(node, str(error)) from error
        return {o.name: o.type for o in done.output}

    def _contradiction(self, node: ir.Node, why: str) -> ModelRefused:
        shapes = ", ".join(f"{v.name}: {_text(self.dims(v))}" for v in node.inputs if v is not None)
        line = next((line.strip() for line in why.splitlines() if line.strip()), "shapes contradict")
        what = f"{node.op_type} does not accept these shapes ({shapes}): {line}"
        return ModelRefused(what, where=f"node {label(node)}", code="DP202")

    def _fold(self, node: ir.Node) -> None:
        if node.op_type in ("Shape", "Size"):
            dims = self.static_shape(node.inputs[0]) if node.inputs else None
            numbers = shape_numbers(node, dims) if dims is not None else None
            if numbers is not None:
                self.set_constant(node.outputs[0], numbers)
                return
        elif node.op_type in EVALUATORS and all(v is None or v in self.constants for v in node.inputs):
            self._compute(node)
            return
        partly = symbolic.evaluate(self, node)
        if isinstance(partly, np.ndarray):
            self.set_constant(node.outputs[0], partly)
        elif partly is not None:
            self.partial[node.outputs[0]] = partly

    def _compute(self, node: ir.Node) -> None:
        if not self._bounded(node):
            return
        inputs = [None if v is None else self.constants[v] for v in node.inputs]
        read = sum(a.size for a in inputs if a is not None)

        def few(elements: int) -> bool:
            return (node.op_type != "NonZero" or elements <= CONSTANT_BYTES) and self.may_fold(read + elements)

        arrays = evaluate(node.op_type, self.version(node), inputs, plain_attributes(node), len(node.outputs), few)
        for output, array in zip(node.outputs, arrays or [], strict=False):
            if array.dtype in NUMPY_TYPES.values():
                self.set_constant(output, array)

    def _bounded(self, node: ir.Node) -> bool:
        """Return True if the outputs of a node are small enough to compute; True for NonZero, whose size is unknown."""
        if node.op_type == "NonZero":
            return True  # its size depends on what it reads
        for output in node.outputs:
            dims, dtype = self.static_shape(output), NUMPY_TYPES.get(self.dtype(output))
            if dims is None or dtype is None:
                return False
            if math.prod(dims) * dtype.itemsize > (CONSTANT_BYTES if dtype.kind != "f" else FLOAT_BYTES):
                return False
        return True


def _text(dims: Sequence[Dim] | None) -> str:
    return "unknown rank" if dims is None else "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


def _clear_doubtful(known: Known, node: ir.Node, inferred: dict[str, onnx.TypeProto]) -> None:
    """Clear sizes in ``inferred`` (output name -> type) on which onnx and ONNX Runtime do not agree.

    An example is a Slice that runs backwards to the largest integer. It selects nothing in onnx's inference and
    reference evaluator, and everything down to the first element in ONNX Runtime's CPU provider (SliceBase, tried with
    1.24).
    """
    if node.op_type != "Slice" or len(node.inputs) < 5 or not node.outputs:
        return
    proto = inferred.get(node.outputs[0].name or "")
    ends, axes, steps = (known.constant(value) for value in node.inputs[2:5])
    if proto is None or ends is None or steps is None:
        return
    dims = proto.tensor_type.shape.dim
    places = range(ends.size) if axes is None else [int(a) for a in axes.reshape(-1)]
    for place, end, step in zip(places, ends.reshape(-1), steps.reshape(-1), strict=False):
        try:
            slice_of(0, int(end), int(step), 1)
        except Uncertain:
            if -len(dims) <= place < len(dims):
                dims[place].Clear()


def write_types(model: ir.Model, known: Known) -> None:
    """Write the inferred type and shape of every value into ``model``; keep denotations and the names of free sizes.

    A shape that could not be inferred is removed; a graph output whose type is known keeps its declared rank.
    """
    for graph in main_graphs(model):
        outputs = set(graph.outputs)
        for node in graph:
            for value in node.outputs:
                _write(value, known, value in outputs)
        if graph is not model.graph:
            for value in graph.inputs:
                _write(value, known, False)


def _write(value: ir.Value, known: Known, is_output: bool) -> None:
    proto = known.types.get(value)
    if proto is None:
        value.shape = None
        return
    value.type = ir.serde.deserialize_type_proto_for_type(proto)
    if not proto.HasField("tensor_type"):
        value.shape = ir.serde.deserialize_type_proto_for_shape(proto)
        return
    dims, old = dims_of(proto), value.shape
    if dims is None:
        # The checker needs a shape on every graph output: keep the declared one, without sizes that are not proved.
        value.shape = _unproved(old, known) if is_output and old is not None else None
        return
    names = [None if isinstance(d, int) else d.value for d in old] if old is not None and len(old) == len(dims) else []
    new = [
        names[i] if i < len(names) and names[i] and not isinstance(d, int) and (is_output or d is None) else d
        for i, d in enumerate(dims)
    ]
    if is_output or value not in known.assumed:
        new = [None if isinstance(d, str) and known.substitute(d) is not None else d for d in new]
    value.shape = with_dims(old, new)


def _unproved(old: ir.Shape, known: Known) -> ir.Shape:
    dims = [d if isinstance(d, int) or not d.value or known.substitute(d.value) is None else None for d in old]
    return with_dims(old, [d if isinstance(d, int) or d is None else d.value for d in dims])


def refuse_wrong_types(graph: ir.Graph, known: Known, *, bodies: bool = False) -> None:
    """Raise if the graph declares an output as another type than it has; shapes are not compared.

    Args:
        bodies: True to check the bodies of If, Loop and Scan as well.

    Raises:
        ModelRefused: DP003, an output has another type than declared.
    """
    inner = (body for node in graph.all_nodes() for _, body in attribute_graphs(node)) if bodies else ()
    for value in chain(graph.outputs, *(body.outputs for body in inner)):
        declared, actual = _named(value.type), _of_inputs(value, known) or _known(value, known)
        if declared and actual and declared != actual:
            what = f"output {value.name} is declared {declared}, but is {actual}: ONNX Runtime refuses the model"
            raise ModelRefused(what, where=value.name or "", code="DP003", fix="export the model again")


def _of_inputs(value: ir.Value, known: Known) -> str:
    """Return the type of an output as text, from an input that must have the same type; empty if it is unknown."""
    node, place = value.producer(), value.index()
    if node is None or place is None or node.domain:
        return ""
    key = (node.op_type, known.version(node))
    if schema_at(*key) is None:
        return ""
    outputs, inputs = (type_parameters(*key, outputs=which) for which in (True, False))
    if place >= len(outputs) or outputs[place][1] == "Variadic" or outputs[place][0] not in type_constraints(*key):
        return ""
    # A variadic input comes last and may have a type for each value; those that are left out come last too.
    same = [at for at, (kind, how) in enumerate(inputs) if kind == outputs[place][0] and how != "Variadic"]
    alike = (node.inputs[at] for at in same if at < len(node.inputs))
    return next((type_name for one in alike if (type_name := _known(one, known))), "")


def _known(value: ir.Value | None, known: Known) -> str:
    proto = known.type(value)
    return _named(proto and ir.serde.deserialize_type_proto_for_type(proto))


def _named(kind: ir.TypeProtocol | None) -> str:
    """Return a type as text (``FLOAT``, ``sequence of INT64``); empty where part of it is not known."""
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        inner = _named(kind.elem_type)
        return inner and f"{'sequence' if isinstance(kind, ir.SequenceType) else 'optional'} of {inner}"
    return kind.dtype.name if kind is not None and kind.dtype != ir.DataType.UNDEFINED else ""
