"""Bounds of a model: ranks, sizes, nesting, and numbers of element types.

The bounds come from numpy, protobuf and ONNX Runtime, which fail beyond them. They are checked once, when a model is
opened, so that other code does not have to check them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import onnx

from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.graph.model import protos


def invalid(what: str, where: str = "", code: str = "DP003") -> InputError:
    """Return an error about an invalid model, with the advice to export it again."""
    return InputError(what, where=where, code=code, fix="export the model again")


LESS_NESTED = "export the model with fewer If, Loop and Scan nodes inside each other"
"""The remedy for graphs that are nested too deep."""


def too_large(what: str, where: str, fix: str = "export a smaller model") -> ModelRefused:
    """Return an error (DP016) about a model beyond the bounds."""
    return ModelRefused(what, where=where, code="DP016", fix=fix)


MAX_RANK = 64
"""Most dimensions of a tensor: numpy 2 allows no more."""

MAX_ELEMENTS = 1 << 59
"""Most elements of a tensor: numpy and ONNX Runtime count its bytes, 16 each at most, in signed 64 bits."""

MAX_NESTING = 31
"""Most levels of nested graphs, also in ONNX Runtime.

protobuf reads 100 nested messages: three for each graph, and some for its content.
"""

_MAX_VERSION = (1 << 31) - 1
"""Largest version of an opset: onnx and ONNX Runtime store it in 32 bits."""

_ELEMENT_TYPES = frozenset(onnx.TensorProto.DataType.values())
_NAMES_A_TYPE = frozenset(("to", "dtype", "output_dtype", "output_datatype", "stash_type"))
"""Names of attributes of ONNX's operators whose value is an element type."""


def check_bounds(proto: onnx.ModelProto, where: str) -> None:
    """Raise if a parsed model is beyond the bounds; ``where`` is the file, for the error.

    Raises:
        InputError: DP003, an invalid element type or version, or a tensor of a negative size.
        ModelRefused: DP016, more dimensions, elements or nested graphs than can be read.
    """
    depth = _nesting(proto)
    if depth > MAX_NESTING:
        raise too_large(f"graphs are nested {depth} deep, at most {MAX_NESTING} are allowed", where, LESS_NESTED)
    for holder in (proto, *proto.functions):
        for entry in holder.opset_import:
            if not 0 <= entry.version <= _MAX_VERSION:
                raise invalid(f"{entry.version} is not a version of the domain {entry.domain or 'ai.onnx'}", where)
    for node in protos.nodes(proto):
        _check_types(node, where)
    for tensor in protos.tensors(proto):
        at = f"{where}: tensor {tensor.name!r}"
        if tensor.data_type not in _ELEMENT_TYPES:
            raise invalid(f"{tensor.data_type} is not an element type", at)
        _check_dims(tensor.dims, at)
    for name, shape in _shapes(proto):
        _check_dims([max(d.dim_value, 1) for d in shape.dim], f"{where}: {name}")


def beyond_bounds(dims: Sequence[int]) -> str:
    """Return why a tensor of these sizes is too large; empty where it is not."""
    if len(dims) > MAX_RANK:
        return f"it has {len(dims)} dimensions, at most {MAX_RANK} are allowed"
    # A size of 0 makes the tensor empty, but products of the other sizes can still overflow.
    if math.prod(max(d, 1) for d in dims) > MAX_ELEMENTS:
        return f"its sizes, {' x '.join(map(str, dims))}, have too many elements"
    return ""


def _check_dims(dims: Sequence[int], where: str) -> None:
    if any(d < 0 for d in dims):
        raise invalid("a tensor has a negative size", where)
    if wrong := beyond_bounds(dims):
        raise too_large(wrong, where)


def _check_types(node: onnx.NodeProto, where: str) -> None:
    if node.domain not in ("", "ai.onnx"):
        return
    for attribute in node.attribute:
        if attribute.name not in _NAMES_A_TYPE or attribute.type != onnx.AttributeProto.INT or attribute.ref_attr_name:
            continue
        undefined = attribute.i == onnx.TensorProto.UNDEFINED and attribute.name != "output_dtype"
        if attribute.i not in _ELEMENT_TYPES or undefined:
            at = f"{where}: node {node.name or node.op_type}"
            raise invalid(f"{attribute.name}={attribute.i} is not an element type", at)


def _nesting(proto: onnx.ModelProto) -> int:
    level: list[Iterable[onnx.NodeProto]] = [proto.graph.node, *(f.node for f in proto.functions)]
    depth = 0
    while level := [body.node for nodes in level for node in nodes for body in protos.bodies(node)]:
        depth += 1
    return depth


def _shapes(proto: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorShapeProto]]:
    """Yield the name and shape of every value with a shape, also of a sequence's or optional's elements."""
    for graph in protos.graphs(proto):
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type
            while (which := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
                kind = getattr(kind, which).elem_type
            if which == "tensor_type" and kind.tensor_type.HasField("shape"):
                yield value.name, kind.tensor_type.shape
