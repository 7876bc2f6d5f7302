"""A model as the rules see it: graphs of nodes whose values have types, shapes and, where constant, a size or a value.

``building.build`` makes them of a model and what is known of its values. The rules of this room, placement and the
quirks all speak of these. Element types are written as ONNX Runtime writes them in kernel tables: ``float``,
``float16``, ``int64``, ``seq(tensor(float))``, ``optional(tensor(float))``; ``""`` is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
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


class Value:
    """One tensor (or sequence, or optional) of a graph.

    Attributes:
        type: element type, ``""`` where unknown.
        proto: the type as ONNX writes it, ``None`` where unknown.
        shape: sizes, ``None`` where not even the rank is known.
        constant: an initializer or the output of Constant that nothing can override.
        initializer: an initializer, also one that is a graph input as well.
        graph_input: an input of the graph that it belongs to.
        graph_output: an output of the graph that it belongs to.
        producer: the node that makes it.
        consumers: the nodes that read it, those that read it inside a subgraph included.
        graph: path of the graph that it belongs to.
        tensor: of a small initializer or Constant; ``None`` where only type and shape are at hand.
    """

    __slots__ = (
        "constant",
        "consumers",
        "graph",
        "graph_input",
        "graph_output",
        "initializer",
        "name",
        "producer",
        "proto",
        "shape",
        "tensor",
        "type",
    )

    def __init__(self, name: str, graph: str = "") -> None:
        self.name = name
        self.graph = graph
        self.type = ""
        self.proto: onnx.TypeProto | None = None
        self.shape: tuple[Dim, ...] | None = None
        self.constant = False
        self.initializer = False
        self.graph_input = False
        self.graph_output = False
        self.producer: NodeFacts | None = None
        self.consumers: list[NodeFacts] = []
        self.tensor: ir.TensorProtocol | None = None

    @property
    def dtype(self) -> ir.DataType | None:
        """Element type of a tensor; ``None`` where it is not known, or where the value is no tensor."""
        return ir.DataType[self.type.upper()] if self.type and "(" not in self.type else None

    @property
    def rank(self) -> int | None:
        """Number of dimensions, ``None`` where unknown."""
        return None if self.shape is None else len(self.shape)

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
        """Its value where it is a small constant, else ``None``."""
        if self.tensor is None or not self.constant:
            return None
        return np.asarray(self.tensor.numpy())

    def integers(self) -> list[int] | None:
        """Its values as integers, flattened, where it is a small constant of integers."""
        array = self.array()
        return None if array is None or array.dtype.kind not in "iu" else [int(v) for v in array.reshape(-1)]

    def __repr__(self) -> str:
        return f"Value({self.name}: {self.type or '?'}{list(self.shape) if self.shape is not None else '?'})"


class NodeFacts:
    """One node.

    Attributes:
        ir: the node itself.
        name: as the model writes it, may be empty.
        key: ``Conv`` for ai.onnx, ``com.microsoft::Gelu`` for others.
        since: since_version of the operator at the model's opset, 0 where ONNX has none.
        opset: version of the operator's domain that the model imports.
        index: its place in the topological order of its graph, Constant nodes left out.
        inputs: explicit inputs, ``None`` for one left out.
        implicit: outer values that its subgraphs read.
        outputs: ``None`` for one left out.
        subgraphs: attribute name -> graph.
        origin: label of the node that it was inlined from, empty where it stands in the model itself.
        supported: what was asked last of who has a kernel for it, and the answer: each target asks several times.
    """

    __slots__ = (
        "domain",
        "graph",
        "implicit",
        "index",
        "inputs",
        "ir",
        "key",
        "name",
        "op",
        "opset",
        "origin",
        "outputs",
        "since",
        "subgraphs",
        "supported",
    )

    def __init__(self, node: ir.Node, graph: str, opset: int) -> None:
        self.ir = node
        self.graph = graph
        self.index = 0
        self.name = node.name or ""
        self.op = node.op_type
        self.domain = node.domain
        self.key = f"{self.domain}::{self.op}" if self.domain else self.op
        self.opset = opset
        self.since = since_version(self.domain, self.op, opset)
        self.inputs: list[Value | None] = []
        self.outputs: list[Value | None] = []
        self.implicit: list[Value] = []
        self.subgraphs: dict[str, GraphFacts] = {}
        self.origin = ""
        self.supported: tuple[object, int, object] | None = None

    @property
    def label(self) -> str:
        """Its name, or operator and first output where it has none."""
        if self.name:
            return self.name
        return f"{self.op}({next((o.name for o in self.outputs if o is not None), '')})"

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

    def output(self, index: int = 0) -> Value | None:
        """The output at a position, ``None`` where there is none."""
        return self.outputs[index] if index < len(self.outputs) else None

    def __repr__(self) -> str:
        return f"NodeFacts({self.label}: {self.key}-{self.since})"


class GraphFacts:
    """One graph: the main graph (path ``""``) or a subgraph (``If_3/then_branch``).

    Attributes:
        nodes: in topological order, Constant nodes left out (ONNX Runtime turns them into initializers).
        constants: the Constant nodes left out.
    """

    def __init__(self, path: str, parent: NodeFacts | None) -> None:
        self.path = path
        self.parent = parent
        self.nodes: list[NodeFacts] = []
        self.constants: list[NodeFacts] = []
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []

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
