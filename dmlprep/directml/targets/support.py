"""The rules for one node: whether a DirectML kernel accepts it, and if not, which provider does.

Source: ONNX Runtime, core/framework/kernel_registry.cc (VerifyVersion, types) and core/providers/dml/
DmlExecutionProvider/src/ExecutionProvider.cpp (IsNodeSupportedByDml, DoesNodeContainSupportedDataTypes). Rules that
depend on the graph around a node (shape arithmetic, fusion) belong to placement.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.directml.targets.kernels import CpuKernel, Kernel, Tables, mismatch
from dmlprep.directml.targets.queries import QUERIES
from dmlprep.graph.analysis.schemas import schema_of

Provider = Literal["dml", "cpu", "none"]

_DML_TYPES = frozenset(
    ["float", "float16", "double", "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64))]
)
_SEQUENCE_OPS = frozenset(
    [
        *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceLength", "SequenceErase", "SequenceInsert"),
        *("OptionalGetElement", "OptionalHasElement", "If", "ConcatFromSequence"),
    ]
)


@dataclass(frozen=True, slots=True)
class Support:
    """The provider that has a kernel for a node, and why DirectML has none.

    Attributes:
        provider: ``dml``, ``cpu`` or ``none``. With ``none``, a function operator is inlined (``inlined``), and any
            other operator fails.
        code: reason code (``DP501``); ``DP500`` if DirectML runs it.
        reason: the reason as one clause, with this node's versions or types (``DirectML has version 11, not 22``);
            empty for ``DP500``.
        inlined: whether ONNX Runtime replaces the node by its function body before it places nodes.
    """

    provider: Provider
    code: str
    reason: str
    since_version: int
    inlined: bool = False


def dml_kernel(tables: Tables, node: NodeFacts) -> Kernel | None:
    """The DirectML kernel whose version and types match the node, even if its support query refuses it, or ``None``."""
    kernel = tables.dml.get(node.key, {}).get(node.since)
    return kernel if kernel is not None and mismatch(node, kernel.types) is None else None


def cpu_kernel(tables: Tables, node: NodeFacts, stand_in: dict[str, str] | None = None) -> CpuKernel | None:
    """The first CPU kernel that runs the node, or ``None``; ``stand_in`` as in ``kernels.mismatch``."""
    rows = tables.cpu.get(node.key, ())
    return next((row for row in rows if row.serves(node.since) and mismatch(node, row.types, stand_in) is None), None)


def node_support(tables: Tables, node: NodeFacts) -> Support:
    """Return the provider of one node by the rules; the node caches the result.

    The facts of the node must not change afterwards, except for ``since`` and ``opset``.
    """
    if node.supported is not None and node.supported[0] is tables and node.supported[1] == node.since:
        return cast(Support, node.supported[2])
    answer = _apply(tables, node)
    node.supported = tables, node.since, answer
    return answer


@lru_cache
def _by_directml(since: int) -> Support:
    return Support("dml", "DP500", "", since)


def _apply(tables: Tables, node: NodeFacts) -> Support:
    code, reason = _refusal(tables, node)
    if not code:
        return _by_directml(node.since)
    if cpu_kernel(tables, node) is not None:
        return Support("cpu", code, reason, node.since)
    if is_function(node):
        return Support(
            "none",
            "DP509",
            "the operator has no kernel: ONNX Runtime inlines its function body",
            node.since,
            inlined=True,
        )
    if cpu_kernel(tables, node, {"float16": "float"}) is not None:
        return Support("cpu", code, f"{reason}; the CPU computes it in FP32, between casts", node.since)
    return Support("none", "DP507", f"this release has no kernel for it on any provider ({reason})", node.since)


def _refusal(tables: Tables, node: NodeFacts) -> tuple[str, str]:
    """Code and reason why DirectML does not run a node; both are empty if it does."""
    rows = tables.dml.get(node.key)
    if not rows:
        return "DP502", "DirectML has no kernel for this operator"
    kernel = rows.get(node.since)
    if kernel is None:
        older = [v for v in rows if v < node.since]
        nearest = max(older) if older else min(rows)
        return "DP501", f"DirectML has version {nearest}, not {node.since}"
    broken = mismatch(node, kernel.types)
    if broken is not None:
        label, value = broken
        return (
            "DP503",
            f"{value.name} is {value.type}; DirectML supports {', '.join(sorted(kernel.types[label]))} there",
        )
    if kernel.query and (refused := QUERIES[kernel.query](node)):
        return "DP504", refused
    # A constant input that is read on the CPU may have any data type.
    read = [v for at, v in enumerate(node.inputs) if at not in kernel.const]
    for other in (*read, *node.outputs, *node.implicit):
        if other is not None and other.type not in _DML_TYPES and (why := _unknown(node, other)):
            return "DP505", why
    return "", ""


def _unknown(node: NodeFacts, value: Value) -> str:
    """The reason why DirectML does not support a value's data type; empty if it does, or if the type is unknown."""
    kind = value.type
    if kind.startswith("seq("):
        if node.op not in _SEQUENCE_OPS:
            return f"{value.name} is a sequence, which DirectML does not support here"
        kind = kind.removeprefix("seq(tensor(").removesuffix("))")
    return "" if not kind or kind in _DML_TYPES else f"{value.name} is {value.type}, which DirectML does not support"


def is_function(node: NodeFacts) -> bool:
    """Return whether ONNX defines the operator by a function body at the model's opset (Relu has one from 18 on)."""
    return _has_body(node.domain, node.op, node.since, node.opset)


@lru_cache(maxsize=8192)
def _has_body(domain: str, op: str, since: int, opset: int) -> bool:
    schema = schema_of(domain, op, since)
    if schema is None:
        return False
    versions = [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]
    return any(version <= opset for version in versions)
