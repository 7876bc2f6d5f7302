"""The facts of a model that the rules read: graphs of nodes whose values have a type, a shape and maybe a content.

``building.build`` makes them from a model and the knowledge of its values. The rules of ``directml``, placement and the
quirks all use them. Element types have the form of ONNX Runtime's kernel tables: ``float``, ``float16``, ``int64``,
``seq(tensor(float))``, ``optional(tensor(float))``; ``""`` is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from dmlprep.graph.analysis.schemas import schema_of
from dmlprep.graph.model.dims import Dim
from dmlprep.graph.model.sources import Sources
from dmlprep.graph.model.walk import join_path
from dmlprep.portable.arrays import Array
from dmlprep.record.source import Source

INTERNAL_SINCE = {"SimplifiedLayerNormalization": 1, "LayerNormalization": 1, "Affine": 1, "Crop": 1, "ImageScaler": 1}
"""Operator -> since_version, for operators that ONNX Runtime itself defines in ai.onnx, if ONNX has no schema at the
model's opset (onnxruntime/core/graph/contrib_ops/contrib_defs.cc)."""

_LIKE: dict[type, tuple[type, ...]] = {
    str: (str,), int: (int,), float: (int, float), list: (list, tuple), tuple: (list, tuple), range: (list, tuple)
}  # fmt: skip
"""Type of a default -> types of an attribute's value that are accepted. A string that is not UTF-8 is ``bytes``, which
no default accepts."""


_NO_GRAPHS: Mapping[str, GraphFacts] = MappingProxyType({})  # one for all nodes saves memory


@lru_cache(maxsize=4096)
def _elements(shape: tuple[Dim, ...]) -> int | None:
    sizes = [d for d in shape if isinstance(d, int)]
    return math.prod(sizes) if len(sizes) == len(shape) else None


def since_version(domain: str, op: str, opset: int) -> int:
    """The since_version of an operator at an opset.

    An operator of ai.onnx without a schema has the version in ``INTERNAL_SINCE``, or 0; one of another domain has 1.
    """
    schema = schema_of(domain, op, opset)
    if schema is not None:
        return int(schema.since_version)
    if domain in ("", "ai.onnx"):
        return INTERNAL_SINCE.get(op, 0)
    return 1


@dataclass(slots=True, eq=False, repr=False)
class Value:
    """One tensor (or sequence, or optional) of a graph.

    Attributes:
        graph: path of its graph; ``graph_input`` and ``graph_output`` refer to that graph.
        type: element type; ``""`` if unknown.
        proto: the type in ONNX's form; ``None`` if unknown.
        shape: each size as a number, the name of a free dimension, or ``None``; the whole is ``None`` if not even the
            rank is known.
        constant: whether it is the output of Constant, or an initializer that an input cannot override.
        initializer: whether it is an initializer or the output of Constant, even if an input can override it.
        producer: the node that writes it; ``None`` for inputs, initializers and outputs of Constant.
        consumers: the nodes that read it, including nodes inside subgraphs, and the nodes whose subgraphs read it.
        tensor: the tensor of a Constant, or of a small initializer: at most 1,024 bytes, or strings. ``None`` if only
            type and shape are available.
        elements: for the second input of a Reshape with allowzero: its elements as far as known, from
            ``known_in_parts``; ``None`` for other values.
    """

    name: str
    graph: str = ""
    type: str = ""
    proto: onnx.TypeProto | None = None
    shape: tuple[Dim, ...] | None = None
    constant: bool = False
    initializer: bool = False
    graph_input: bool = False
    graph_output: bool = False
    producer: NodeFacts | None = None
    consumers: list[NodeFacts] = field(default_factory=list)
    tensor: ir.TensorProtocol | None = None
    elements: tuple[Dim, ...] | None = None

    @property
    def dtype(self) -> ir.DataType | None:
        """Element type of a tensor; ``None`` if it is unknown, or if the value is not a tensor."""
        return ir.DataType[self.type.upper()] if self.type and "(" not in self.type else None

    @property
    def numpy_type(self) -> np.dtype:
        """The numpy type of the elements; only for a tensor whose type is known."""
        return ir.DataType[self.type.upper()].numpy()

    @property
    def rank(self) -> int | None:
        """Number of dimensions; ``None`` if unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The shape; only for a tensor whose rank is known."""
        assert self.shape is not None
        return self.shape

    @property
    def static(self) -> bool:
        """Return whether every size is known."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def sizes(self) -> list[int]:
        """The sizes that are known numbers, in order; free dimensions are left out."""
        return [d for d in self.shape or () if isinstance(d, int)]

    @property
    def size(self) -> int | None:
        """Number of elements; ``None`` if a size is unknown."""
        return None if self.shape is None else _elements(self.shape)

    def array(self) -> Array | None:
        """Its content as an array, if it is constant and ``tensor`` has it; ``None`` otherwise."""
        return np.asarray(self.tensor.numpy()) if self.tensor is not None and self.constant else None

    def integers(self) -> list[int] | None:
        """Its content as a flat list, if ``array`` returns integers; ``None`` otherwise."""
        array = self.array()
        return None if array is None or array.dtype.kind not in "iu" else [int(v) for v in array.reshape(-1)]

    def __repr__(self) -> str:
        return f"Value({self.name}: {self.type or '?'}{list(self.shape) if self.shape is not None else '?'})"


@dataclass(slots=True, eq=False, repr=False)
class NodeFacts:
    """One node.

    Attributes:
        ir: the node itself.
        graph: path of its graph.
        opset: version of the operator's domain that the model imports.
        index: its position among the nodes of its graph in topological order, without Constant nodes.
        inputs, outputs: the values that the node lists; ``None`` for an omitted one.
        implicit: values from outside of its subgraphs that the subgraphs read.
        subgraphs: attribute name -> graph.
        origin: label of the node that it was inlined from; empty for a node of the model itself.
        sources: finds the source line that a node was exported from.
        supported: a cache for ``support.node_support``: tables, version and result of its last call.
        name: its name in the model; may be empty.
        key: ``Conv`` for ai.onnx, ``com.microsoft::Gelu`` for other domains.
        since: result of ``since_version`` at ``opset``; 0 if ai.onnx has no such operator.
    """

    ir: ir.Node
    graph: str
    opset: int
    index: int = 0
    inputs: list[Value | None] = field(default_factory=list)
    outputs: list[Value | None] = field(default_factory=list)
    implicit: Sequence[Value] = ()
    subgraphs: Mapping[str, GraphFacts] = field(default_factory=lambda: _NO_GRAPHS)
    origin: str = ""
    sources: Sources | None = None
    supported: tuple[object, int, object] | None = None
    name: str = field(init=False)
    op: str = field(init=False)
    domain: str = field(init=False)
    key: str = field(init=False)
    since: int = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.op, self.domain = self.ir.name or "", self.ir.op_type, self.ir.domain
        self.key = f"{self.domain}::{self.op}" if self.domain else self.op
        self.since = since_version(self.domain, self.op, self.opset)

    @property
    def label(self) -> str:
        """Its name; without one, the operator and the first output."""
        return self.name or f"{self.op}({next((o.name for o in self.outputs if o is not None), '')})"

    @property
    def path(self) -> str:
        """Its label with the path of its graph."""
        return join_path(self.graph, self.label)

    @property
    def source(self) -> Source | None:
        """Module and source line that it was exported from; ``None`` if unknown."""
        return None if self.sources is None else self.sources.of(self.ir)

    def has(self, name: str) -> bool:
        """Return whether the node has the attribute."""
        return name in self.ir.attributes

    def attribute(self, name: str, default: object = None) -> Any:
        """An attribute's value; ``default`` if it is absent, or if its type does not fit the type of the default."""
        attr = self.ir.attributes.get(name)
        if attr is None or (default is not None and not isinstance(attr.value, _LIKE.get(type(default), (object,)))):
            return default
        return attr.value

    def input(self, index: int) -> Value | None:
        """The input at a position, as the node lists them; ``None`` if it is omitted or beyond the last."""
        return self.inputs[index] if index < len(self.inputs) else None

    def required(self, index: int = 0) -> Value:
        """The input at a position; only for one that the caller knows to exist."""
        value = self.inputs[index]
        assert value is not None
        return value

    def rank(self, index: int) -> int | None:
        """The number of dimensions of an input; ``None`` if it is omitted or unknown."""
        value = self.input(index)
        return None if value is None else value.rank

    def array(self, index: int) -> Array | None:
        """The result of ``Value.array`` for an input; ``None`` if it is omitted."""
        value = self.input(index)
        return None if value is None else value.array()

    def integers(self, index: int) -> list[int] | None:
        """The result of ``Value.integers`` for an input; ``None`` if it is omitted."""
        value = self.input(index)
        return None if value is None else value.integers()

    def output(self, index: int = 0) -> Value | None:
        """The output at a position; ``None`` if it is omitted or beyond the last."""
        return self.outputs[index] if index < len(self.outputs) else None

    def __repr__(self) -> str:
        return f"NodeFacts({self.label}: {self.key}-{self.since})"


@dataclass(eq=False, repr=False)
class GraphFacts:
    """One graph: the main graph (path ``""``) or a subgraph (``If_3/then_branch``).

    Attributes:
        parent: the node that the subgraph belongs to; ``None`` for the main graph.
        nodes: in topological order, without Constant nodes (ONNX Runtime turns them into initializers).
        constants: the Constant nodes.
    """

    path: str
    parent: NodeFacts | None
    nodes: list[NodeFacts] = field(default_factory=list)
    constants: list[NodeFacts] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    @property
    def subgraphs(self) -> list[GraphFacts]:
        """The subgraphs of its own nodes, without the subgraphs inside those."""
        return [graph for node in self.nodes for graph in node.subgraphs.values()]

    def all_graphs(self) -> Iterator[GraphFacts]:
        """This graph and all subgraphs at any depth; each graph comes before the graphs inside it."""
        stack = [self]
        while stack:
            graph = stack.pop()
            yield graph
            stack.extend(reversed(graph.subgraphs))

    def all_nodes(self) -> Iterator[NodeFacts]:
        """The nodes of this graph and of all subgraphs at any depth, without Constant nodes."""
        return (node for graph in self.all_graphs() for node in graph.nodes)
