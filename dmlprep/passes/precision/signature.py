"""The types that an operator's inputs and outputs may have, from its schema at the model's opset.

A port is an input or output of an operator. Ports with the same type variable (``T``) have the same element type. A
port without a variable has the type that the schema gives (``scales`` of Resize is ``tensor(float)``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import onnx
import onnx_ir as ir

from dmlprep.graph.analysis.schemas import schema_of

_TENSOR = re.compile(r"^tensor\((\w+)\)$")
_NAMES = {name: ir.DataType[name.upper()] for name in ("float", "float16", "double", "bfloat16")}

CONTRIB: dict[str, tuple[str, str]] = {
    "Attention": ("T T T int T T int", "T T"),
    **dict.fromkeys(("BiasAdd", "FusedGemm", "NhwcConv"), ("T T T", "T")),
    **dict.fromkeys(
        ("BiasGelu", "BiasSoftmax", "BiasSplitGelu", "FastGelu", "FusedMatMul", "FusedMatMulActivation"), ("T T", "T")
    ),
    "ConvTransposeWithDynamicPads": ("T T int T", "T"),
    "DequantizeLinear": ("int T2 int", "T2"),
    "DynamicQuantizeMatMul": ("float int float int float", "float"),
    "EmbedLayerNormalization": ("int int T T T T T int int", "T int T"),
    "FusedConv": ("T T T T", "T"),
    **dict.fromkeys(("Gelu", "Inverse", "QuickGelu"), ("T", "T")),
    "GroupNorm": ("T M M", "T"),
    "GroupQueryAttention": ("T T T T T int int T T int T T", "T T T T"),
    "MatMulIntegerToFloat": ("int int T3 T3 int int T3", "T3"),
    "MatMulNBits": ("T1 int T1 int int T1", "T1"),
    "MultiHeadAttention": ("T T T T int T T T int int", "T T T T"),
    "QAttention": ("int int T3 T3 T3 int int int T3", "T3 T3"),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), ("int float int int float int float int", "int")),
    **dict.fromkeys(
        ("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"),
        ("int float int float int", "int"),
    ),
    "QuantizeLinear": ("T1 T1 int", "int"),
    "RotaryEmbedding": ("T int T T", "T"),
    "SkipGroupNorm": ("T M M T T", "T T"),
    "SkipLayerNormalization": ("T T T T T", "T float float T"),
    "SkipSimplifiedLayerNormalization": ("T T T T", "T float float T"),
}
"""Types of com.microsoft operators, for which onnx has no schema: type variables of the inputs, and of the outputs.

``float`` is always FP32, ``int`` is any type that is not floating-point. Operators of com.microsoft outside this table
are not converted. Source: ONNX Runtime 1.24, docs/ContribOperators.md and onnxruntime/core/graph/contrib_ops/."""


def operators(text: str) -> frozenset[str]:
    """Split a text of names of operators, with spaces between them, into a set."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Port:
    """The allowed types of an input or output of an operator.

    Attributes:
        variable: name of the type variable; empty if the schema gives the type itself. Where a variadic input may have
            different types, each of its ports has its own variable (``V#2``).
        label: the variable or type as the schema and the kernel tables write it (``V``).
        floats: allowed floating-point element types.
        plain: whether only tensors are allowed (no sequences, no optionals).
        only: the allowed element type, if there is exactly one; otherwise ``None``.
    """

    variable: str
    label: str
    floats: frozenset[ir.DataType]
    plain: bool
    only: ir.DataType | None = None


@dataclass(frozen=True)
class Signature:
    """The ports (inputs and outputs) of an operator.

    Attributes:
        since: the opset in which the operator last changed.
        variadic_in, variadic_out: whether the last input or output may be repeated.
        mixed_in, mixed_out: whether such repeated ones may have different types.
        is_function: whether ONNX defines the operator as a function.
    """

    since: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    variadic_in: bool = False
    variadic_out: bool = False
    mixed_in: bool = False
    mixed_out: bool = False
    is_function: bool = False

    def input(self, index: int) -> Port | None:
        """The port of input ``index``; ``None`` if the operator has no such input."""
        return _at(self.inputs, index, self.variadic_in, self.mixed_in)

    def output(self, index: int) -> Port | None:
        """The port of output ``index``; ``None`` if the operator has no such output."""
        return _at(self.outputs, index, self.variadic_out, self.mixed_out)


def _at(ports: tuple[Port, ...], index: int, variadic: bool, mixed: bool) -> Port | None:
    last = len(ports) - 1
    if index < last or (index == last and not variadic):
        return ports[index]
    if not variadic or last < 0:
        return None
    port = ports[last]
    return Port(f"{port.variable}#{index}", port.label, port.floats, port.plain, port.only) if mixed else port


def operator_key(node: ir.Node) -> str:
    """The name of an operator: ``Conv``, or with a domain other than ai.onnx: ``com.microsoft::Gelu``."""
    return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)


def signature(node: ir.Node, opsets: Mapping[str, int]) -> Signature | None:
    """The signature of a node's operator; ``None`` if it is unknown. ``opsets``: domain -> opset of the model."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return _signature(domain, node.op_type, opsets.get(domain, opsets.get("ai.onnx", 1) if not domain else 1))


@lru_cache(maxsize=4096)
def _signature(domain: str, op: str, version: int) -> Signature | None:
    if domain == "com.microsoft":
        if op not in CONTRIB:
            return None
        inputs, outputs = (tuple(map(_contrib_port, words.split())) for words in CONTRIB[op])
        return Signature(1, inputs, outputs)
    schema = schema_of(domain, op, version)
    if schema is None:
        return None
    allowed = {c.type_param_str: tuple(c.allowed_type_strs) for c in schema.type_constraints}
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    ins, outs = list(schema.inputs), list(schema.outputs)
    return Signature(
        schema.since_version,
        tuple(_port(p.type_str, allowed) for p in ins),
        tuple(_port(p.type_str, allowed) for p in outs),
        bool(ins) and ins[-1].option == variadic,
        bool(outs) and outs[-1].option == variadic,
        bool(ins) and not ins[-1].is_homogeneous,
        bool(outs) and not outs[-1].is_homogeneous,
        bool(getattr(schema, "has_function", False) or getattr(schema, "has_context_dependent_function", False)),
    )


def _port(type_str: str, allowed: Mapping[str, tuple[str, ...]]) -> Port:
    kinds = allowed.get(type_str, (type_str,))
    floats = frozenset(_NAMES[m[1]] for k in kinds if (m := _TENSOR.match(k)) and m[1] in _NAMES)
    plain = all(_TENSOR.match(k) for k in kinds)
    match = _TENSOR.match(kinds[0]) if len(kinds) == 1 else None
    only = ir.DataType[match[1].upper()] if match else None
    return Port(type_str if type_str in allowed else "", type_str, floats, plain, only)


def _contrib_port(word: str) -> Port:
    if word == "float":
        return Port("", "tensor(float)", frozenset({ir.DataType.FLOAT}), True)
    if word == "int":
        return Port("", "int", frozenset(), True)
    return Port(word, word, frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16}), True)
