"""A model as the rules see it: graphs of nodes whose values have types, shapes and, where constant, a size or a value.

``building.build`` makes them of a model and what is known of its values. The rules of this room, placement and the
quirks all speak of these. Element types are written as ONNX Runtime writes them in kernel tables: ``float``,
``float16``, ``int64``, ``seq(tensor(float))``, ``optional(tensor(float))``; ``""`` is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from dmlprep.graph.analysis.schemas import schema_of
from dmlprep.graph.model.dims import Dim
from dmlprep.graph.model.walk import join_path
from dmlprep.portable.arrays import Array

INTERNAL_SINCE = {"SimplifiedLayerNormalization": 1, "LayerNormalization": 1, "Affine": 1, "Crop": 1, "ImageScaler": 1}
"""Operators that ONNX Runtime itself defines in ai.onnx, where ONNX has no schema at the model's opset
(onnxruntime/core/graph/contrib_ops/contrib_defs.cc)."""

_LIKE: dict[type, tuple[type, ...]] = {
    str: (str,), int: (int,), float: (int, float), list: (list, tuple), tuple: (list, tuple), range: (list, tuple)
}  # fmt: skip
"""Type of a default -> those that an attribute's value may have; a string that is no UTF-8 is bytes."""


def since_version(domain: str, op: str, opset: int) -> int:
    """Version of the operator that an opset means; 1 for operators of domains without schemas, 0 for none."""
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
        graph: path of the graph that it belongs to; ``graph_input`` and ``graph_output`` are about that graph.
        type: element type, ``""`` where unknown.
        proto: the type as ONNX writes it, ``None`` where unknown.
        shape: sizes, ``None`` where not even the rank is known.
        constant: an initializer or the output of Constant that nothing can override.
        initializer: an initializer, also one that is a graph input as well.
        consumers: the nodes that read it, those that read it inside a subgraph included.
        tensor: of a small initializer or Constant; ``None`` where only type and shape are at hand.
        elements: sizes in the shape of a Reshape with allowzero, as ``known_in_parts`` gives them.
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
        """Element type of a tensor; ``None`` where it is not known, or where the value is no tensor."""
        return ir.DataType[self.type.upper()] if self.type and "(" not in self.type else None

    @property
    def numpy_type(self) -> np.dtype:
        """numpy's type of the elements of a tensor whose type is known."""
        return ir.DataType[self.type.upper()].numpy()

    @property
    def rank(self) -> int | None:
        """Number of dimensions, ``None`` where unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The shape of a tensor whose rank is known."""
        assert self.shape is not None
        return self.shape

    @property
    def static(self) -> bool:
        """Whether every size is known."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def sizes(self) -> list[int]:
        """The sizes that are known, in order: all of them where it is static."""
        return [d for d in self.shape or () if isinstance(d, int)]

    @property
    def size(self) -> int | None:
        """Number of elements, ``None`` where not static."""
        if self.shape is None:
            return None
        total = 1
        for d in self.shape:
            if not isinstance(d, int):
                return None
            total *= d
        return total

    def array(self) -> Array | None:
        """Its value where it is a small constant, ``None`` otherwise."""
        return np.asarray(self.tensor.numpy()) if self.tensor is not None and self.constant else None

    def integers(self) -> list[int] | None:
        """Its values as integers, flattened, where it is a small constant of integers."""
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
        index: its place in the topological order of its graph, Constant nodes left out.
        inputs, outputs: explicit ones, ``None`` for one left out.
        implicit: outer values that its subgraphs read.
        subgraphs: attribute name -> graph.
        origin: label of the node that it was inlined from, empty for a node of the model itself.
        supported: the last question about who has a kernel for it, and the answer: each target asks several times.
        name: as the model writes it, may be empty.
        key: ``Conv`` for ai.onnx, ``com.microsoft::Gelu`` for others.
        since: since_version of the operator at the model's opset, 0 where ONNX has none.
    """

    ir: ir.Node
    graph: str
    opset: int
    index: int = 0
    inputs: list[Value | None] = field(default_factory=list)
    outputs: list[Value | None] = field(default_factory=list)
    implicit: list[Value] = field(default_factory=list)
    subgraphs: dict[str, GraphFacts] = field(default_factory=dict)
    origin: str = ""
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
        """Its name, or operator and first output where it has none."""
        return self.name or f"{self.op}({next((o.name for o in self.outputs if o is not None), '')})"

    @property
    def path(self) -> str:
        """Its label with the path of its graph."""
        return join_path(self.graph, self.label)

    def has(self, name: str) -> bool:
        """Whether the attribute is written."""
        return name in self.ir.attributes

    def attribute(self, name: str, default: object = None) -> Any:
        """An attribute's value; ``default`` where it is not written, or is of another type than the default."""
        found = self.ir.attributes.get(name)
        if found is None or (default is not None and not isinstance(found.value, _LIKE.get(type(default), (object,)))):
            return default
        return found.value

    def input(self, index: int) -> Value | None:
        """The explicit input at a position, ``None`` where there is none."""
        return self.inputs[index] if index < len(self.inputs) else None

    def required(self, index: int = 0) -> Value:
        """The explicit input at a position, of which the caller knows that the node has it."""
        value = self.inputs[index]
        assert value is not None
        return value

    def rank(self, index: int) -> int | None:
        """The number of dimensions of an input, ``None`` where it is left out or not known."""
        value = self.input(index)
        return None if value is None else value.rank

    def array(self, index: int) -> Array | None:
        """The value of an input that is a small constant, ``None`` otherwise."""
        value = self.input(index)
        return None if value is None else value.array()

    def integers(self, index: int) -> list[int] | None:
        """The value of an input that is a small constant of integers, flattened; ``None`` otherwise."""
        value = self.input(index)
        return None if value is None else value.integers()

    def output(self, index: int = 0) -> Value | None:
        """The output at a position, ``None`` where there is none."""
        return self.outputs[index] if index < len(self.outputs) else None

    def __repr__(self) -> str:
        return f"NodeFacts({self.label}: {self.key}-{self.since})"


@dataclass(eq=False, repr=False)
class GraphFacts:
    """One graph: the main graph (path ``""``) or a subgraph (``If_3/then_branch``).

    Attributes:
        nodes: in topological order, Constant nodes left out (ONNX Runtime turns them into initializers).
        constants: the Constant nodes left out.
    """

    path: str
    parent: NodeFacts | None
    nodes: list[NodeFacts] = field(default_factory=list)
    constants: list[NodeFacts] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    @property
    def subgraphs(self) -> list[GraphFacts]:
        """The graphs of its nodes, one level down."""
        return [graph for node in self.nodes for graph in node.subgraphs.values()]

    def all_graphs(self) -> Iterator[GraphFacts]:
        """This graph and all below it, a node's graphs right after the graph it stands in."""
        stack = [self]
        while stack:
            graph = stack.pop()
            yield graph
            stack.extend(reversed(graph.subgraphs))

    def all_nodes(self) -> Iterator[NodeFacts]:
        """The nodes of this graph and of all below it; Constant nodes left out."""
        return (node for graph in self.all_graphs() for node in graph.nodes)
