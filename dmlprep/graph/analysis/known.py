"""The state of shape inference node by node, which its rules read and fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import onnx
import onnx_ir as ir

from dmlprep.graph.analysis.folding import NUMPY_TYPES, Array
from dmlprep.graph.analysis.knowledge import Knowledge, tensor_type
from dmlprep.graph.analysis.polynomial import Polynomial
from dmlprep.graph.model.walk import count_nodes

Element = Polynomial | None
Elements = tuple[bool, tuple[Element, ...]]
"""Whether the value is a vector (else a scalar), and what is known of each element."""

_ALL_BYTES = 256 << 20  # of all values together that are held at once; small ones are held beyond it
_SMALL_BYTES = 4096
_WALKED, _WALKED_PER_NODE = 100_000, 64  # a walk through three loops inside one another, of four rounds each


@dataclass
class Known(Knowledge):
    """What is known of the values of one model from the nodes that were walked so far, and from nowhere else.

    Attributes:
        partial: small integer values of which some elements are free sizes.
        assumed: values whose shape is only declared by the model: their operator is not onnx's.
        substitute: the size of a named dimension, for what is declared and cannot be inferred.
        walked: how many nodes were walked so far, those of bodies once for each round.
    """

    partial: dict[ir.Value, Elements] = field(default_factory=dict)
    assumed: set[ir.Value] = field(default_factory=set)
    substitute: Callable[[str], int | None] = field(default=lambda name: None)
    walked: int = 0
    _held: int = 0

    @cached_property
    def most_walked(self) -> int:
        """How many nodes may be walked before shapes that loops carry are given up: nested loops multiply."""
        return _WALKED + _WALKED_PER_NODE * count_nodes(self.model)

    def type(self, value: ir.Value | None) -> onnx.TypeProto | None:
        """The value's type, ``None`` where it is not known: what is declared counts where a rule says so."""
        return self.types.get(value) if value is not None else None

    def constant(self, value: ir.Value | None) -> Array | None:
        """The numbers of a value, ``None`` where they are not known."""
        return self.constants.get(value) if value is not None else None

    def set_type(self, value: ir.Value, proto: onnx.TypeProto | None) -> None:
        """Note what type a value has; whatever was known of it is forgotten."""
        super().set_type(value, proto)
        self.partial.pop(value, None)
        self.assumed.discard(value)

    def set_constant(self, value: ir.Value, array: Array) -> None:
        """Note what numbers a value is."""
        elem = next(code for code, dtype in NUMPY_TYPES.items() if dtype == array.dtype)
        self.set_type(value, tensor_type(elem, array.shape))
        self.hold(value, array)

    def hold(self, value: ir.Value, array: Array) -> None:
        """Keep the numbers of a value whose type is noted, as long as there is room for them."""
        if array.nbytes > _SMALL_BYTES:
            if self._held + array.nbytes > _ALL_BYTES:
                return
            self._held += array.nbytes
        self.constants[value] = array

    def version(self, node: ir.Node, domain: str | None = None) -> int:
        """The opset that a node is written in; that of ``domain`` at the node's place where one is given."""
        graph = node.graph
        imports = graph.opset_imports if isinstance(graph, ir.Function) else self.model.graph.opset_imports
        domain = node.domain if domain is None else domain
        if domain in ("", "ai.onnx"):  # two spellings of one domain
            return int(imports.get("", imports.get("ai.onnx", 1)))
        return int(imports.get(domain, 1))
