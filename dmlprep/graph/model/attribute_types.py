"""Check that attributes have their declared type, and the type that their operator needs, when a model is opened.

Other code reads attributes by name and does not check them again. onnx's checker and ONNX Runtime check the same, but
placement and reports read models before ONNX Runtime does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import onnx

from dmlprep.graph.model import protos
from dmlprep.graph.model.bounds import invalid

_Type = onnx.AttributeProto

_SHORT = {"FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "TYPE_PROTO": "tp"}
_FIELDS = {number: _SHORT.get(name, name.lower()) for name, number in _Type.AttributeType.items() if number}
"""Type of an attribute -> name of the field in AttributeProto that has its value."""

_TYPES = {field: number for number, field in _FIELDS.items()}
_MESSAGES = frozenset((_Type.TENSOR, _Type.GRAPH, _Type.SPARSE_TENSOR, _Type.TYPE_PROTO))
"""Types without a default value: an attribute of such a type without a value is invalid."""


def check_attributes(proto: onnx.ModelProto, where: str) -> None:
    """Raise for an invalid attribute, and for a node of a function with too few or too many inputs or outputs.

    An attribute is invalid if it is a duplicate, or if its type is not the declared one or the one that the operator
    needs. A branch of an If is invalid if it has another number of outputs than the If. Names and types of
    nodes must be UTF-8.
    onnx's checker does not count inputs and outputs in functions.

    Raises:
        InputError: DP003, the attribute or node is invalid; the error's ``where`` is ``where``, with the node's name.
    """
    own = {(function.domain, function.name) for function in proto.functions}
    for node, opsets, in_function in _nodes(proto):
        if not all(isinstance(text, str) for text in (node.domain, node.op_type, node.name)):
            # protobuf returns bytes for invalid text
            raise invalid("a node's name or type is not UTF-8", where)
        form = _UNKNOWN if (node.domain, node.op_type) in own else _form(node.op_type, node.domain, opsets)
        if in_function and (wrong := _wrong_count(node, form)):
            raise invalid(wrong, f"{where}: node {node.name or node.op_type}")
        names = set()
        for attribute in node.attribute:
            twice = f"attribute {attribute.name!r} is duplicated" if attribute.name in names else ""
            names.add(attribute.name)
            if wrong := twice or _wrong(attribute, form.attributes) or _unfit_branch(node, attribute):
                label = node.name or f"{node.op_type}({', '.join(node.output)})"
                raise invalid(wrong, f"{where}: node {label}")


def _wrong(attribute: onnx.AttributeProto, expected: dict[str, int]) -> str:
    """Return what is wrong with an attribute's type or value; empty where it is valid.

    ``expected``: attribute name -> type that the operator needs.
    """
    name, kind = attribute.name, int(attribute.type)
    held = [_TYPES[field.name] for field, _ in attribute.ListFields() if field.name in _TYPES]
    # Files of IR version 1 declare no types; the field with the value shows the type.
    if not kind and len(held) == 1:
        kind = held[0]
    if kind not in _FIELDS:
        return f"attribute {name!r} has no type"
    other = next((_named(one) for one in held if one != kind), "")
    if other or (kind in _MESSAGES and not held and not attribute.ref_attr_name):
        return f"attribute {name!r} is declared {_named(kind)}, but contains {other or 'nothing'}"
    wanted = expected.get(name)
    if wanted is not None and kind != wanted:
        return f"attribute {name!r} is {_named(kind)}, but the operator needs {_named(wanted)}"
    return ""


def _unfit_branch(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> str:
    """Return that a branch of an If has another number of outputs than the If; empty where it has the same number."""
    if node.op_type != "If" or node.domain not in ("", "ai.onnx") or attribute.ref_attr_name:
        return ""
    gives, wanted = len(attribute.g.output), len(node.output)
    if attribute.HasField("g") and gives != wanted:
        return f"{attribute.name} returns {gives} values, but the If has {wanted}"
    return ""


def _named(kind: int) -> str:
    return str(_Type.AttributeType.Name(kind))


_Opsets = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Form:
    """The parts of an operator's schema in onnx that this module checks.

    Attributes:
        attributes: attribute name -> type (``AttributeProto.INT`` ...).
        outputs: minimum number of outputs.
        inputs: minimum and maximum number of inputs.
        needed: positions of required inputs.
    """

    attributes: dict[str, int] = field(default_factory=dict)
    outputs: int = 0
    inputs: tuple[int, int] = (0, sys.maxsize)
    needed: tuple[int, ...] = ()


_UNKNOWN = _Form()
"""The form of an operator without a schema in onnx: it accepts everything."""


def _wrong_count(node: onnx.NodeProto, form: _Form) -> str:
    """Return what is wrong with the number of a node's inputs or outputs; empty where it is valid."""
    if len(node.output) < form.outputs:
        return f"it has {len(node.output)} outputs, but the operator has at least {form.outputs}"
    least, most = form.inputs
    if not least <= len(node.input) <= most:
        takes = f"at least {least}" if len(node.input) < least else f"at most {most}"
        return f"it has {len(node.input)} inputs, but the operator needs {takes}"
    left_out = next((i for i in form.needed if i < len(node.input) and not node.input[i]), None)
    return f"it has no input {left_out}, which the operator needs" if left_out is not None else ""


def _nodes(proto: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, _Opsets, bool]]:
    """Yield every node, its opsets (a function has its own), and True if it is inside a function."""
    main, *own = (tuple((e.domain, e.version) for e in holder.opset_import) for holder in (proto, *proto.functions))
    stack: list[tuple[onnx.GraphProto | onnx.FunctionProto, _Opsets, bool]] = [(proto.graph, main, False)]
    stack += [(function, opsets or main, True) for function, opsets in zip(proto.functions, own, strict=True)]
    while stack:
        holder, opsets, in_function = stack.pop()
        for node in holder.node:
            yield node, opsets, in_function
            stack += [(body, opsets, in_function) for body in protos.bodies(node)]


@lru_cache(maxsize=4096)
def _form(op_type: str, domain: str, opsets: _Opsets) -> _Form:
    domain = "" if domain == "ai.onnx" else domain
    # ONNX Runtime uses the newest version where a model names none.
    version = next((v for d, v in opsets if d == domain or (d == "ai.onnx" and not domain)), None)
    get = onnx.defs.get_schema
    try:
        schema = get(op_type, domain) if version is None else get(op_type, version, domain)
    except onnx.defs.SchemaError:
        return _UNKNOWN
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    attributes: dict[str, Any] = dict(schema.attributes)  # the stubs of an enumeration of C++ have no value
    return _Form(
        {name: int(attribute.type.value) for name, attribute in attributes.items()},
        # All outputs of an LSTM may be left out; a node without any has no use, and no output to name it by.
        max(1, int(schema.min_output)),
        (int(schema.min_input), int(schema.max_input)),
        tuple(index for index, one in enumerate(schema.inputs) if one.option == single),
    )
