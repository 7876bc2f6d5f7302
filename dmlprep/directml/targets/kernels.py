"""Kernel tables: the operator versions for which a release has kernels, on DirectML and on the CPU.

``data/kernels.json`` (from packages, by ``scripts/read_release.py``) has the kernels of all releases:

* ``releases``: name -> the facts of ``dmlprep.directml.targets.target.Target``;
* ``types``: sets of element types, referred to by position;
* ``dml``: operator -> rows ``[releases, since, {label: type set}, {extra}]``;
* ``cpu``: operator -> rows ``[releases, since, until or null, {label: type set}]``.

``releases`` of a row is the range that has it: ``1.21-1.29``, or ``1.21-`` to the newest.

Extra keys of a DirectML row:

* ``const``: inputs that must be constant on the CPU to be fused;
* ``cpu_in``: other inputs that are read from CPU memory;
* ``cpu_out``: outputs that stay in CPU memory;
* ``fuses``: false if no fused graph accepts it;
* ``fused_inputs``: the number of inputs that a fused graph needs;
* ``query``: the name of its support query;
* ``made_by``: ``cpu_kernel`` or ``shader`` if the kernel is not a DirectML operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.directml.targets.releases import within
from dmlprep.graph.analysis.schemas import schema_of


class Kernel(NamedTuple):
    """One DirectML kernel of an operator. It runs only nodes whose since_version is exactly ``since``.

    Attributes:
        types: label of the schema's type constraint (``T``) -> accepted element types.
        const: positions of inputs that are read on the CPU and must be initializers for the node to be fused.
        cpu_in: positions of all inputs read from CPU memory, including ``const``.
        cpu_out: positions of outputs that stay in CPU memory.
        fuses: whether a fused graph accepts it.
        fused_inputs: the number of inputs that a node needs to be fused, 0 for any.
        query: name of its support query (a check by the provider, see ``queries``), empty for none.
        made_by: ``dml`` (an operator of DirectML), ``cpu_kernel`` or ``shader``.
    """

    since: int
    types: dict[str, frozenset[str]]
    const: frozenset[int] = frozenset()
    cpu_in: frozenset[int] = frozenset()
    cpu_out: frozenset[int] = frozenset()
    fuses: bool = True
    fused_inputs: int = 0
    query: str = ""
    made_by: str = "dml"


class CpuKernel(NamedTuple):
    """One CPU kernel; it runs nodes whose since_version is ``since`` or, with ``until``, from ``since`` up to it."""

    since: int
    until: int | None
    types: dict[str, frozenset[str]]

    def serves(self, version: int) -> bool:
        """Return whether it runs nodes with this since_version, whatever their types."""
        return self.since == version or (self.until is not None and self.since <= version <= self.until)


@dataclass(frozen=True)
class Tables:
    """The kernels of one release by operator key (``Conv``, ``com.microsoft::Gelu``); ``dml`` then by since_version."""

    dml: dict[str, dict[int, Kernel]]
    cpu: dict[str, list[CpuKernel]]


class _File(msgspec.Struct):
    types: list[list[str]]
    dml: dict[str, list[list[Any]]]
    cpu: dict[str, list[list[Any]]]


Rows = dict[tuple[str, int], tuple[object, list[dict[str, frozenset[str]]]]]
"""Operator key and since_version -> the DirectML rows and the CPU rows of a release that decide about such nodes."""


def rows_for(tables: Tables, operators: Iterable[tuple[str, int]]) -> Rows:
    """The rows of ``tables`` that decide about these operators: pairs of operator key and since_version.

    If two releases have equal rows, their providers run the same nodes, for the same reasons.
    """
    rows: Rows = {}
    for key, since in operators:
        dml = tables.dml.get(key, {})
        cpu = [row.types for row in tables.cpu.get(key, ()) if row.serves(since)]
        rows[key, since] = dml.get(since) or dml, cpu  # without a kernel of this version, messages name the others
    return rows


@lru_cache(maxsize=1)
def _file() -> tuple[_File, list[frozenset[str]]]:
    data = (resources.files("dmlprep.directml.targets") / "data" / "kernels.json").read_bytes()
    file = msgspec.json.decode(data, type=_File)
    return file, [frozenset(names) for names in file.types]


@lru_cache(maxsize=16)
def load_tables(release: tuple[int, int]) -> Tables:
    """The kernel tables of a release of ONNX Runtime (``(1, 24)``); cached."""
    file, sets = _file()

    @cache
    def has(span: str) -> bool:
        first, _, last = span.partition("-")
        return within(release, first, last or None)

    def types(labels: dict[str, int]) -> dict[str, frozenset[str]]:
        return {label: sets[i] for label, i in labels.items()}

    dml = {
        op: {since: _kernel(since, types(labels), *rest) for span, since, labels, *rest in rows if has(span)}
        for op, rows in file.dml.items()
    }
    cpu = {
        op: [CpuKernel(since, until, types(labels)) for span, since, until, labels in rows if has(span)]
        for op, rows in file.cpu.items()
    }
    return Tables({op: rows for op, rows in dml.items() if rows}, {op: rows for op, rows in cpu.items() if rows})


def _kernel(since: int, types: dict[str, frozenset[str]], extra: Mapping[str, Any] | None = None) -> Kernel:
    """Make a kernel from the parts of a DirectML row; ``extra`` has its extra keys."""
    if not extra:
        return Kernel(since, types)
    const, cpu_in, cpu_out = (frozenset(extra.get(name, ())) for name in ("const", "cpu_in", "cpu_out"))
    return Kernel(since, types, **{**extra, "const": const, "cpu_in": const | cpu_in, "cpu_out": cpu_out})


_CONTRIB: dict[str, dict[str, str]] = {
    # label -> inputs (i0) and outputs (o0) that have it, from onnxruntime/core/graph/contrib_ops/*_defs.cc
    "Attention": {"T": "i0 i1 i2 o0", "M": "i3"},
    "MultiHeadAttention": {"T": "i0 i1 i2 i3 o0", "M": "i4"},
    "GroupQueryAttention": {"T": "i0 i1 i2 o0", "M": "i5 i6"},
    "QAttention": {"T1": "i0", "T2": "i1", "T3": "i2 i3 i4 o0", "T4": "i5"},
    "EmbedLayerNormalization": {"T1": "i0 i1", "T": "i2 i3 i4 i5 i6 o0"},
    "RotaryEmbedding": {"T": "i0 i2 i3 o0", "M": "i1"},
    "DequantizeLinear": {"T1": "i0 i2", "T2": "i1 o0"},
    "QuantizeLinear": {"T1": "i0 i1", "T2": "i2 o0"},
    "DynamicQuantizeMatMul": {"T1": "i0 i2 i4 o0", "T2": "i1 i3"},
    "MatMulIntegerToFloat": {"T1": "i0", "T2": "i1", "T3": "i2 i3 i6 o0"},
    "MatMulNBits": {"T1": "i0 i2 o0", "T2": "i1", "T3": "i3", "T4": "i4"},
    "QLinearConcat": {"TF": "i0", "T8": "i1 o0", "TV": "i2"},
    "QLinearAdd": {"T": "i0 i3 o0"},
    "QLinearMul": {"T": "i0 i3 o0"},
    "QLinearSigmoid": {"T": "i0 o0"},
    "QLinearAveragePool": {"T": "i0 o0"},
    "QLinearGlobalAveragePool": {"T": "i0 o0"},
    "GroupNorm": {"T": "i0 o0", "M": "i1 i2"},
    "GatherND": {"T": "i0 o0", "Tind": "i1"},
    "Unique": {"T": "i0 o0"},
}


@lru_cache(maxsize=8192)
def _positions(domain: str, op: str, since: int) -> dict[str, tuple[tuple[str, int], ...]]:
    """Type constraint (``T``), or name of a parameter -> its places: ``("i", 0)`` is input 0, ``("o", 1)`` output 1."""
    schema = schema_of(domain, op, since)
    positions: dict[str, list[tuple[str, int]]] = {}
    if schema is None or schema.since_version != since:
        layout = _CONTRIB.get(op, {"T": "i0 o0"}) if domain == "com.microsoft" else {"T": "i0 o0", "V": "o0", "U": "o1"}
        return {label: tuple((p[0], int(p[1:])) for p in places.split()) for label, places in layout.items()}
    for side, parameters in (("i", schema.inputs), ("o", schema.outputs)):
        for at, parameter in enumerate(parameters):
            for label in {parameter.type_str, parameter.name}:
                positions.setdefault(label, []).append((side, at))
    return {label: tuple(places) for label, places in positions.items()}


def mismatch(
    node: NodeFacts, types: dict[str, frozenset[str]], stand_in: dict[str, str] | None = None
) -> tuple[str, Value] | None:
    """The first type constraint of a kernel that a node violates: its label and the value; ``None`` if there is none.

    As in ONNX Runtime (core/framework/kernel_registry.cc), only the first value present counts for each label. A value
    of unknown type violates no constraint.

    Args:
        types: label of a type constraint -> accepted element types.
        stand_in: element type of a value -> type to check instead (``float16`` -> ``float``: ONNX Runtime adds casts).
    """
    positions = _positions(node.domain, node.op, node.since)
    for label, allowed in types.items():
        for side, at in positions.get(label, ()):
            value = node.input(at) if side == "i" else node.output(at)
            if value is None:
                continue
            kind = stand_in.get(value.type, value.type) if stand_in else value.type
            if kind and kind not in allowed:
                return label, value
            break
    return None
