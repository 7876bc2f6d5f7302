"""Call onnx's checker, shape inference, version converter, inliner and function builders in the worker process.

Each call raises ``OnnxError`` if onnx refuses the model, and ``ToolFailed`` if it crashes or exceeds its limits. It
raises ``CheckNotRun`` if its process does not start, and ``InternalError`` if dmlprep is at fault (``door.ask``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import onnx
from google.protobuf.message import DecodeError, EncodeError, Message
from onnx.defs import OpSchema

from dmlprep.core.errors import ToolFailed
from dmlprep.process.onnx_worker.door import OnnxError, ask, ask_once


def check_model(proto: onnx.ModelProto) -> None:
    """Call ``onnx.checker.check_model`` without shape inference.

    It returns if the model is valid, and raises ``OnnxError`` otherwise.
    """
    ask_once("check", _bytes(proto))


def infer_shapes(
    proto: onnx.ModelProto, *, check_type: bool = False, strict: bool = False, propagate: bool = True
) -> onnx.ModelProto:
    """Call ``onnx.shape_inference.infer_shapes``, and return a new model with the inferred types.

    Inferred sequence and optional types without an element type are left out. ``propagate``: also follow the values of
    shape arithmetic.
    """
    model = _model(ask_once("infer", _bytes(proto), b"%d" % check_type, b"%d" % strict, b"%d" % propagate))
    _clear_hulls(model.graph)
    return model


def infer_node(
    schema: OpSchema,
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto],
    opset: int,
    ir_version: int,
) -> dict[str, onnx.TypeProto]:
    """Call ``onnx.shape_inference.infer_node_outputs``; return the types of a node's outputs by name.

    Outputs without a known type are left out. ``types`` has the types of all values that the node and its bodies read,
    and ``data`` the constant inputs, by name. ``opset`` is the version of the operator's domain.
    """
    head = (*_operator(schema), b"%d" % opset, b"%d" % ir_version)
    names = _plain_names(node)
    if not names:
        return _inferred(ask, head, node, types, data)
    plain = onnx.NodeProto(op_type=node.op_type, domain=node.domain, overload=node.overload, attribute=node.attribute)
    plain.input.extend(names[name] for name in node.input)
    plain.output.extend(names[name] for name in node.output)
    values = {names[name]: proto for name, proto in types.items()}
    own_names = {plain_name: name for name, plain_name in names.items()}
    constants = {}
    for name, tensor in data.items():
        constants[names[name]] = constant = onnx.TensorProto()
        constant.CopyFrom(tensor)
        constant.name = names[name]
    try:
        inferred = _inferred(ask_once, head, plain, values, constants)
    except OnnxError:
        return _inferred(ask, head, node, types, data)  # onnx's message then has the real names
    return {own_names[name]: proto for name, proto in inferred.items()}


def _plain_names(node: onnx.NodeProto) -> dict[str, str]:
    """Return neutral names for a node's inputs and outputs, so that equal nodes share one request.

    The result is empty for a node with subgraphs, which keeps its names. A network contains the same node many times,
    and each request would compute it again: 9 of 10 requests are repetitions.
    """
    if any(a.HasField("g") or a.graphs for a in node.attribute):
        return {}
    names = {name: f"v{i}" for i, name in enumerate(dict.fromkeys((*node.input, *node.output)))}
    return names | {"": ""} if "" in names else names


def _inferred(
    asked: Callable[..., list[bytes]],
    head: Iterable[bytes],
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto],
) -> dict[str, onnx.TypeProto]:
    rows: tuple[tuple[str, Message], ...] = (*types.items(), *data.items())
    named = (part for name, value in rows for part in (name.encode(), value.SerializeToString()))
    answer = asked("node", *head, _bytes(node), b"%d" % len(types), *named)
    pairs = zip(answer[::2], answer[1::2], strict=True)
    kinds = {name.decode(): onnx.TypeProto.FromString(value) for name, value in pairs}
    return {name: kind for name, kind in kinds.items() if not _is_hull(kind)}


def convert_version(proto: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Call ``onnx.version_converter.convert_version``, and return the new model."""
    return _model(ask("convert", _bytes(proto), b"%d" % version))


def inline_functions(proto: onnx.ModelProto, functions: Iterable[tuple[str, str]]) -> onnx.ModelProto:
    """Call ``onnx.inliner.inline_selected_functions``, and return the new model.

    Functions are pairs of domain and name.
    """
    return _model(ask("inline", _bytes(proto), *(text.encode() for function in functions for text in function)))


def function_body(
    schema: OpSchema, version: int, node: onnx.NodeProto, types: Sequence[onnx.TypeProto]
) -> onnx.FunctionProto | None:
    """Return the function body that onnx builds for a node's attributes and types; ``None`` if the operator has none.

    ``version`` is one of the schema's ``context_dependent_function_opset_versions``. An omitted input has an empty
    type.

    Raises:
        OnnxError: onnx refuses, or its body defines a value twice. One example is a SequenceMap whose body has an
            initializer and an input of the same name.
    """
    serialized = [t.SerializeToString() for t in types]
    (data,) = ask("body", *_operator(schema), b"%d" % version, _bytes(node), *serialized)
    if not data:
        return None
    body: onnx.FunctionProto = onnx.FunctionProto.FromString(data)
    _clear_unknown_types(body.node)
    _check_made_once(body.input, body.node)
    return body


def _check_made_once(names: Iterable[str], nodes: Sequence[onnx.NodeProto]) -> None:
    """Raise ``OnnxError`` if a body, or a subgraph in it, defines a name twice: onnx joins names without a check.

    ``names`` are the inputs of the body, with the initializers of a subgraph.
    """
    counts = Counter(names)
    counts.update(name for node in nodes for name in node.output if name)
    if twice := next((name for name, count in counts.items() if count > 1), ""):
        raise OnnxError(f"onnx's body of it has two values {twice!r}")
    for node in nodes:
        for graph in _bodies(node):
            _check_made_once([v.name for v in (*graph.input, *graph.initializer)], graph.node)


def _clear_hulls(graph: onnx.GraphProto) -> None:
    """Remove, in place, sequence and optional types without an element type from a graph and its subgraphs.

    onnx infers an empty sequence type if it knows no element type.
    """
    graphs = [graph]
    while graphs:
        one = graphs.pop()
        for index in reversed([i for i, value in enumerate(one.value_info) if _is_hull(value.type)]):
            del one.value_info[index]
        for value in one.output:
            if _is_hull(value.type):
                value.ClearField("type")
        graphs += [body for node in one.node for body in _bodies(node)]


def _is_hull(kind: onnx.TypeProto) -> bool:
    return kind.WhichOneof("value") not in ("tensor_type", None) and not _is_known(kind)


def _clear_unknown_types(nodes: Iterable[onnx.NodeProto]) -> None:
    """Remove, in place, all types without an element type from the subgraphs of nodes.

    onnx writes an empty sequence type, which no reader accepts.
    """
    for node in nodes:
        for graph in _bodies(node):
            for value in (*graph.input, *graph.output, *graph.value_info):
                if value.HasField("type") and not _is_known(value.type):
                    value.ClearField("type")
            _clear_unknown_types(graph.node)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _is_known(kind: onnx.TypeProto) -> bool:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        return bool(getattr(kind, which).elem_type)
    if which in ("sequence_type", "optional_type"):
        return _is_known(getattr(kind, which).elem_type)
    return which == "map_type" and _is_known(kind.map_type.value_type)


@contextmanager
def at_node(node: onnx.NodeProto) -> Iterator[None]:
    """If a call in this block raises ``ToolFailed`` without a place, name the node as its place."""
    try:
        yield
    except ToolFailed as error:
        output = next(iter(node.output), "")
        error.where = error.where or f"node {node.name or f'{node.op_type}({output})'}"
        raise


def _operator(schema: OpSchema) -> tuple[bytes, bytes, bytes]:
    return schema.domain.encode(), schema.name.encode(), b"%d" % schema.since_version


def _bytes(proto: Message) -> bytes:
    try:
        data: bytes = proto.SerializeToString()
    except (ValueError, EncodeError) as error:  # 2 GiB and more
        raise OnnxError(f"the model cannot be serialized: {error}") from error
    return data


def _model(answer: Sequence[bytes]) -> onnx.ModelProto:
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(answer[0])
    except DecodeError as error:
        raise OnnxError(f"the result is not a model: {error}") from error
    return model
