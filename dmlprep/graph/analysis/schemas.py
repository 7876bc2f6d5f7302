"""ONNX operator schemas by version, and the check that one accepts a node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import onnx
import onnx_ir as ir
from onnx.defs import OpSchema

NEWEST: int = onnx.defs.onnx_opset_version()
"""Newest ai.onnx opset that the installed onnx describes."""


_KINDS = {v: k.lower() for k, v in onnx.TensorProto.DataType.items()}


def type_string(proto: onnx.TypeProto) -> str:
    """Return the type as schemas write it (``tensor(float)``, ``seq(tensor(int64))``); empty where it is not known."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        name = _KINDS.get(proto.tensor_type.elem_type, "")
        return f"tensor({name})" if name and name != "undefined" else ""
    if kind in ("sequence_type", "optional_type"):
        inner = type_string(getattr(proto, kind).elem_type)
        return f"{'seq' if kind == 'sequence_type' else 'optional'}({inner})" if inner else ""
    return ""


@lru_cache(maxsize=8192)
def schema_of(domain: str, op_type: str, opset: int) -> Any:
    """Return the schema in force at ``opset``, also one that is withdrawn there; ``None`` if there is none.

    The result is an ``OpSchema``; the type is ``Any`` because onnx's stubs lack members.
    """
    try:
        return onnx.defs.get_schema(op_type, opset, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return None


def schema_at(op_type: str, opset: int, domain: str = "") -> OpSchema | None:
    """Return the schema in force at ``opset``; ``None`` where the operator does not exist or is withdrawn there."""
    schema: OpSchema | None = schema_of(domain, op_type, opset)
    return None if schema is None or schema.deprecated else schema


@lru_cache(maxsize=1)
def since_versions() -> dict[str, tuple[int, ...]]:
    """Return, for each ai.onnx operator, the opsets that introduced or changed it, ascending."""
    by_operator: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            by_operator.setdefault(schema.name, []).append(schema.since_version)
    return {name: tuple(sorted(versions)) for name, versions in sorted(by_operator.items())}


@lru_cache(maxsize=4096)
def type_constraints(op_type: str, opset: int) -> dict[str, frozenset[str]]:
    """Return type variable (``T``) -> accepted types (``tensor(float)``) of an ai.onnx operator at ``opset``.

    Empty if the operator does not exist there.
    """
    schema = schema_at(op_type, opset)
    constraints = schema.type_constraints if schema is not None else ()
    return {c.type_param_str: frozenset(c.allowed_type_strs) for c in constraints}


@lru_cache(maxsize=4096)
def allowed_types(op_type: str, opset: int) -> frozenset[str]:
    """Return all types that the type variables of an ai.onnx operator accept at ``opset``; empty if it does not exist.

    Inputs and outputs of a fixed type (the shape of a Reshape) do not count.
    """
    return frozenset().union(*type_constraints(op_type, opset).values())


@lru_cache(maxsize=4096)
def _attributes_of(op_type: str, opset: int) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of all attributes of an ai.onnx operator, and the names of the required ones."""
    attributes = schema_of("", op_type, opset).attributes
    return frozenset(attributes), frozenset(name for name, a in attributes.items() if a.required)


@lru_cache(maxsize=4096)
def type_parameters(op_type: str, opset: int, *, outputs: bool) -> tuple[tuple[str, str], ...]:
    """Return the formal inputs (or ``outputs``) of an ai.onnx operator that exists at ``opset``.

    Each is a pair: type variable or type, and ``Single``, ``Optional`` or ``Variadic``.
    """
    schema = schema_at(op_type, opset)
    assert schema is not None
    formal = schema.outputs if outputs else schema.inputs
    return tuple((p.type_str, str(p.option).rpartition(".")[2]) for p in formal)


def rejects(
    node: ir.Node,
    opset: int,
    input_types: Sequence[onnx.TypeProto | None],
    output_types: Sequence[onnx.TypeProto | None],
) -> str:
    """Return why the schema of the ai.onnx operator at ``opset`` does not accept the node; empty where it does.

    ``input_types`` and ``output_types`` are the types of the node's values; an unknown type is assumed to fit.
    """
    schema = schema_at(node.op_type, opset)
    if schema is None:
        return f"the operator does not exist at opset {opset}"
    key = (str(node.op_type), opset)
    attributes, required = _attributes_of(*key)
    if (name := next((n for n in node.attributes if n not in attributes), None)) is not None:
        return f"attribute {name!r} does not exist at opset {opset}"
    if (name := next((n for n in required if n not in node.attributes), None)) is not None:
        return f"attribute {name!r} is required at opset {opset}"
    min_in, max_in, min_out, max_out = schema.min_input, schema.max_input, schema.min_output, schema.max_output
    inputs = len(node.inputs)
    while inputs and node.inputs[inputs - 1] is None:
        inputs -= 1
    if not min_in <= inputs <= max_in:
        return f"{inputs} inputs, but opset {opset} accepts {min_in} to {max_in}"
    outputs = len(node.outputs)
    while outputs > min_out and not node.outputs[outputs - 1].name:
        outputs -= 1
    if not min_out <= outputs <= max_out:
        return f"{outputs} outputs, but opset {opset} has {min_out} to {max_out}"
    if reason := _types_rejected(key, input_types, False) or _types_rejected(key, output_types, True):
        return reason
    formal = type_parameters(*key, outputs=False)
    for i, value in enumerate(node.inputs):
        if value is None and formal and formal[min(i, len(formal) - 1)][1] == "Single":
            return f"input {i} is required at opset {opset}"
    return ""


def _types_rejected(key: tuple[str, int], types: Sequence[onnx.TypeProto | None], outputs: bool) -> str:
    formal = type_parameters(*key, outputs=outputs)
    allowed = type_constraints(*key)
    for i, known in enumerate(types if formal else ()):
        name = formal[min(i, len(formal) - 1)][0]
        text = type_string(known) if known is not None else ""
        if text and text not in allowed.get(name, frozenset((name,))):
            return f"{'output' if outputs else 'input'} {i} has type {text}, which opset {key[1]} does not accept"
    return ""
