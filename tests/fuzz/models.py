"""Mutations of an ONNX model: some know what a graph is, some know only what a protobuf message is, some only bytes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tests.fuzz.values import DOUBLES, integer, spoiled, text

__all__ = ["mutated"]

_MOST = 4000
"""Messages of a model that are looked at: large models are made of the same ones."""


def mutated(rng: random.Random, data: bytes, donor: bytes) -> bytes:
    """A model made of another one.

    Args:
        data: a model; bytes that are none are edited as bytes.
        donor: another model, of which parts are taken.
    """
    model = _parsed(data)
    if model is None or rng.random() < 0.04:
        return spoiled(rng, data)
    # Never the model itself: a message that is copied from one around it grows while it is copied, and for ever.
    other = _parsed(donor) or _parsed(data)
    assert other is not None
    for _ in range(rng.choice((1, 1, 1, 1, 1, 2, 2, 3, 8))):
        mutation = rng.choice(_GRAPH) if rng.random() < 0.8 else _any_field
        with contextlib.suppress(ValueError, TypeError, DecodeError):  # protobuf takes no such value: go on without it
            mutation(rng, model, other)
    try:
        made = model.SerializeToString()
    except ValueError:  # more than 2 GiB
        return data
    return spoiled(rng, made) if rng.random() < 0.03 else made


def _parsed(data: bytes) -> onnx.ModelProto | None:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:
        return None
    return model


# A message like any other


def _messages(root: Message) -> list[Message]:
    found, waiting = [], [root]
    while waiting and len(found) < _MOST:
        message = waiting.pop()
        found.append(message)
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                waiting.extend(value if field.is_repeated else [value])
    return found


def _any_field(rng: random.Random, model: onnx.ModelProto, donor: onnx.ModelProto) -> None:
    message = rng.choice(_messages(model))
    held = [field for field, _ in message.ListFields()]
    field = rng.choice(held) if held and rng.random() < 0.8 else rng.choice(message.DESCRIPTOR.fields)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        _part(rng, message, field, donor)
    elif field.is_repeated:
        _list(rng, message, field)
    elif rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _scalar(rng, field, getattr(message, field.name)))


def _scalar(rng: random.Random, field: FieldDescriptor, value: object) -> object:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return spoiled(rng, value) if isinstance(value, bytes) and value else rng.randbytes(rng.randrange(9))
        return text(rng)
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice(DOUBLES if kind == FieldDescriptor.CPPTYPE_DOUBLE else DOUBLES[:10])
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values])
    return integer(
        rng,
        32 if kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 64,
        kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64),
    )


def _list(rng: random.Random, message: Message, field: FieldDescriptor) -> None:
    held = getattr(message, field.name)
    kind = rng.randrange(5)
    if kind == 0 and held:
        del held[rng.randrange(len(held))]
    elif kind == 1:
        held.append(_scalar(rng, field, held[0] if held else b""))
    elif kind == 2 and held:
        held.append(rng.choice(list(held)))
    elif kind == 3 and held:
        del held[rng.randrange(len(held)) :]
    elif held:
        held[rng.randrange(len(held))] = _scalar(rng, field, held[0])


def _part(rng: random.Random, message: Message, field: FieldDescriptor, donor: onnx.ModelProto) -> None:
    given = [m for m in _messages(donor) if m.DESCRIPTOR is field.message_type]
    held = getattr(message, field.name)
    kind = rng.randrange(4)
    if not field.is_repeated:
        if kind == 0 or not given:
            message.ClearField(field.name)
        else:
            held.CopyFrom(rng.choice(given))
        return
    if kind == 0 and len(held):
        del held[rng.randrange(len(held))]
    elif kind == 1 and len(held):
        held.add().CopyFrom(rng.choice(list(held)))
    elif kind == 2 and given:
        held.add().CopyFrom(rng.choice(given))
    elif len(held) > 1:
        parts = [type(p).FromString(p.SerializeToString()) for p in held]
        rng.shuffle(parts)
        message.ClearField(field.name)
        getattr(message, field.name).extend(parts)


# A graph


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    waiting = [model.graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting.extend([attribute.g] if attribute.HasField("g") else attribute.graphs)


def _graph(rng: random.Random, model: onnx.ModelProto) -> onnx.GraphProto:
    return rng.choice(list(_graphs(model)))


def _node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto | None:
    nodes = [n for graph in _graphs(model) for n in graph.node] + [n for f in model.functions for n in f.node]
    return rng.choice(nodes) if nodes else None


def _names(graph: onnx.GraphProto) -> list[str]:
    return [n for node in graph.node for n in (*node.input, *node.output)] + [v.name for v in graph.input] or ["x"]


def _other_operator(rng: random.Random, model: onnx.ModelProto, donor: onnx.ModelProto) -> None:
    node, given = _node(rng, model), _node(rng, donor)
    if node is not None and given is not None:
        node.op_type, node.domain = given.op_type, given.domain
        if rng.random() < 0.5:
            del node.attribute[:]
            node.attribute.extend(given.attribute)


def _other_input(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    node, names = _node(rng, model), _names(model.graph)
    if node is None:
        return
    kind = rng.randrange(5)
    if kind == 0:
        node.input.append(rng.choice([*names, ""]))
    elif kind == 1:
        node.output.append(text(rng))
    elif node.input and kind == 2:
        del node.input[rng.randrange(len(node.input))]
    elif node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*names, ""])


def _attribute(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if node is None or not node.attribute:
        return
    attribute = rng.choice(list(node.attribute))
    kind = rng.randrange(6)
    if kind == 0:
        node.attribute.remove(attribute)
    elif kind == 1:
        attribute.type = rng.choice(onnx.AttributeProto.AttributeType.values())
    elif attribute.ints and kind < 5:
        attribute.ints[rng.randrange(len(attribute.ints))] = integer(rng)
    elif attribute.floats:
        attribute.floats[rng.randrange(len(attribute.floats))] = rng.choice(DOUBLES[:10])
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = text(rng).encode()
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice(DOUBLES[:8])
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = integer(rng)


def _size(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    graph = _graph(rng, model)
    values = [*graph.input, *graph.output, *graph.value_info]
    if not values:
        return
    tensor = rng.choice(values).type.tensor_type
    kind = rng.randrange(6)
    if kind == 0:
        tensor.elem_type = rng.randrange(25)
    elif kind == 1:
        tensor.ClearField("shape")
    elif kind == 2:
        tensor.shape.dim.add(dim_value=integer(rng))
    elif tensor.shape.dim:
        dim = rng.choice(list(tensor.shape.dim))
        if kind == 3:
            dim.dim_param = text(rng)
        elif kind == 4:
            dim.Clear()
        else:
            dim.dim_value = integer(rng)


def _constant(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    tensors = [t for graph in _graphs(model) for t in graph.initializer]
    tensors += [a.t for graph in _graphs(model) for n in graph.node for a in n.attribute if a.HasField("t")]
    if not tensors:
        return
    tensor = rng.choice(tensors)
    kind = rng.randrange(6)
    if kind == 0:
        tensor.data_type = rng.randrange(25)
    elif kind == 1:
        tensor.dims.append(integer(rng))
    elif kind == 2 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = integer(rng)
    elif kind == 3:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key in ("location", "offset", "length", "checksum"):
            if rng.random() < 0.7:
                tensor.external_data.add(key=key, value=str(integer(rng)) if rng.random() < 0.5 else text(rng))
    else:
        _numbers(rng, tensor)


def _numbers(rng: random.Random, tensor: onnx.TensorProto) -> None:
    """Other elements of the same type: small ones are shapes, axes and limits, which decide what others make."""
    if tensor.raw_data and tensor.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32):
        width = 8 if tensor.data_type == onnx.TensorProto.INT64 else 4
        held = bytearray(tensor.raw_data)
        if len(held) >= width:
            at = rng.randrange(len(held) // width) * width
            held[at : at + width] = integer(rng, 8 * width).to_bytes(width, "little", signed=True)
        tensor.raw_data = bytes(held)
    elif tensor.int64_data:
        tensor.int64_data[rng.randrange(len(tensor.int64_data))] = integer(rng)
    elif tensor.raw_data:
        tensor.raw_data = spoiled(rng, tensor.raw_data) if len(tensor.raw_data) < 1 << 20 else tensor.raw_data[:-1]


def _lone_constant(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    """An input that became a constant: what follows from it is folded."""
    graph = model.graph
    if not graph.input:
        return
    value = rng.choice(list(graph.input))
    count = rng.randrange(4)
    numbers = [integer(rng) for _ in range(count)]
    graph.initializer.append(onnx.helper.make_tensor(value.name, onnx.TensorProto.INT64, [count], numbers))
    if rng.random() < 0.7:
        graph.input.remove(value)


_MAKERS = ("Concat", "Add", "Shape", "Expand", "Tile", "Mul", "Range", "Pow", "Cast", "CumSum", "Einsum")


def _grow(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    """Nodes that make much of little, one after another."""
    graph = _graph(rng, model)
    name = rng.choice(_names(graph))
    for number in range(rng.choice((1, 3, 30, 200))):
        made = f"grown{number}_{rng.randrange(1 << 30)}"
        op_type = rng.choice(_MAKERS)
        node = graph.node.add(op_type=op_type, output=[made])
        node.input.extend([name] if op_type in ("Shape", "Cast") else [name] * (3 if op_type == "Range" else 2))
        if op_type == "Concat":
            node.attribute.append(onnx.helper.make_attribute("axis", integer(rng) if rng.random() < 0.2 else 0))
        if op_type == "Cast":
            node.attribute.append(onnx.helper.make_attribute("to", rng.randrange(25)))
        if op_type == "Einsum":
            equation = rng.choice(("ij,jk->ik", "ij.", "....->", "...,...->...", "->", "ii", "a" * 99 + "->"))
            node.attribute.append(onnx.helper.make_attribute("equation", equation))
        name = made
    if graph.output and rng.random() < 0.7:
        rng.choice(list(graph.output)).name = name


def _wrap(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    """The whole graph inside an If or a Loop, some levels deep."""
    for level in range(rng.choice((1, 1, 2, 40))):
        graph = model.graph
        if not graph.output or model.ByteSize() > 1 << 18:
            return
        inner = onnx.GraphProto(name=f"inner{level}")
        inner.node.extend(graph.node)
        inner.output.extend(graph.output)
        condition = f"condition{level}"
        outer = onnx.GraphProto(name="outer", input=graph.input, initializer=graph.initializer)
        outer.initializer.append(onnx.helper.make_tensor(condition, onnx.TensorProto.BOOL, [], [rng.random() < 0.5]))
        outputs = [f"{v.name}_{level}" for v in graph.output]
        if rng.random() < 0.6:
            node = onnx.helper.make_node(
                "If", [condition], outputs, then_branch=inner, else_branch=_other_branch(rng, inner)
            )
        else:
            trips = f"trips{level}"
            outer.initializer.append(onnx.helper.make_tensor(trips, onnx.TensorProto.INT64, [], [integer(rng)]))
            inner.input.add(name=f"i{level}").type.tensor_type.elem_type = onnx.TensorProto.INT64
            inner.input.add(name=f"c{level}").type.tensor_type.elem_type = onnx.TensorProto.BOOL
            inner.output.insert(0, onnx.helper.make_tensor_value_info(f"c{level}", onnx.TensorProto.BOOL, []))
            node = onnx.helper.make_node("Loop", [trips, condition], outputs, body=inner)
        outer.node.append(node)
        for old, name in zip(graph.output, outputs, strict=True):
            outer.output.add().CopyFrom(old)
            outer.output[-1].name = name
        model.graph.CopyFrom(outer)


def _other_branch(rng: random.Random, graph: onnx.GraphProto) -> onnx.GraphProto:
    if rng.random() < 0.3:
        return graph
    made = onnx.GraphProto(name="other", output=graph.output)
    for value in made.output:
        made.node.add(
            op_type="Constant", output=[value.name], attribute=[onnx.helper.make_attribute("value_float", 1.0)]
        )
    return made


def _function(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    """Functions that call one another, twice each or in a circle."""
    node = _node(rng, model)
    if node is None or not node.input or not node.output:
        return
    levels = rng.choice((1, 3, 14, 40))
    domain = rng.choice(("local", "", "com.microsoft"))
    imports = [onnx.helper.make_opsetid(domain, 1), *model.opset_import]
    for level in range(levels):
        function = model.functions.add(name=f"f{level}", domain=domain, input=["a"], output=["c"])
        function.opset_import.extend(imports)
        called = f"f{level - 1}" if level or rng.random() < 0.2 else "Relu"
        own = domain if called != "Relu" else ""
        function.node.add(op_type=called, domain=own, input=["a"], output=["b"])
        function.node.add(op_type=called, domain=own, input=["b"], output=["c"])
    if all(o.domain != domain for o in model.opset_import):
        model.opset_import.add(domain=domain, version=1)
    node.op_type, node.domain = f"f{levels - 1}", domain
    del node.input[1:], node.output[1:], node.attribute[:]


def _versions(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        model.ir_version = integer(rng)
    elif kind == 1 or not model.opset_import:
        model.opset_import.add(domain=text(rng), version=rng.choice((0, 1, 21, integer(rng))))
    else:
        rng.choice(list(model.opset_import)).version = rng.choice(
            (1, 6, 9, 11, 13, 17, 18, 20, 21, 23, 26, 28, integer(rng))
        )


def _rename(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    """One value gets another name everywhere: the model stays as good as it was."""
    graph = model.graph
    old, new = rng.choice(_names(graph)), text(rng)
    for each in _graphs(model):
        for node in each.node:
            for names in (node.input, node.output):
                for at, name in enumerate(names):
                    if name == old:
                        names[at] = new
        for value in (*each.input, *each.output, *each.value_info, *each.initializer):
            if value.name == old:
                value.name = new


def _node_name(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if node is not None:
        node.name = text(rng)


def _sparse(rng: random.Random, model: onnx.ModelProto, _donor: onnx.ModelProto) -> None:
    count = rng.randrange(3)
    values = onnx.helper.make_tensor(text(rng), onnx.TensorProto.FLOAT, [count], [1.0] * count)
    places = onnx.helper.make_tensor("places", onnx.TensorProto.INT64, [count], [integer(rng) for _ in range(count)])
    dims = [abs(integer(rng)) for _ in range(rng.randrange(3))]
    for _ in range(rng.choice((1, 10))):
        model.graph.sparse_initializer.add(values=values, indices=places, dims=dims)


_GRAPH: tuple[Callable[[random.Random, onnx.ModelProto, onnx.ModelProto], None], ...] = (
    _other_operator,
    _other_operator,
    _other_input,
    _other_input,
    _attribute,
    _attribute,
    _attribute,
    _size,
    _size,
    _constant,
    _constant,
    _lone_constant,
    _grow,
    _wrap,
    _function,
    _versions,
    _rename,
    _node_name,
    _sparse,
)
