"""A model as the FP16 rules need it: types, signatures, constants, and the target's kernels.

A wide type is FP32, FP64 or bfloat16: a floating-point type that is converted to FP16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from dmlprep.directml.targets import Target
from dmlprep.graph.analysis.attributes import constant_tensor as any_constant_tensor
from dmlprep.graph.analysis.knowledge import constant_of
from dmlprep.graph.model.walk import attribute_graphs, nodes
from dmlprep.passes.precision.fp16 import WIDE
from dmlprep.passes.precision.signature import Port, Signature, operator_key, signature
from dmlprep.passes.precision.types import Types, is_wide, solve_types

if TYPE_CHECKING:
    from dmlprep.directml.targets.kernels import Tables

NodeReasons = Iterator[tuple[ir.Node, str]]
"""The nodes that an FP16 rule finds, each with the reason as a clause."""

_FLOATS = WIDE | {ir.DataType.FLOAT16}

UNTYPED = frozenset({"Cast", "Shape", "Size"})
"""Operators that read any type, and whose result does not depend on it."""


@dataclass
class View:
    """A model without model-local functions, with facts for the FP16 rules.

    Attributes:
        target: the target whose DirectML kernels count; ``None``: every operator counts as having FP16 kernels.
        types: type of every value before the conversion.
        order: every node; nodes of a subgraph come right after the node that has the subgraph.
        owner: ``id(graph)`` -> the node that has the graph as an attribute.
    """

    model: ir.Model
    target: Target | None
    types: Types = field(default_factory=dict)
    order: list[ir.Node] = field(default_factory=list)
    owner: dict[int, ir.Node] = field(default_factory=dict)
    _signatures: dict[int, Signature | None] = field(default_factory=dict)

    @classmethod
    def of(cls, model: ir.Model, target: Target | None) -> View:
        """Build the view of a model."""
        order = list(nodes(model))
        owner = {id(graph): node for node in order for _, graph in attribute_graphs(node)}
        return cls(model, target, solve_types(model), order, owner)

    def signature(self, node: ir.Node) -> Signature | None:
        """The signature of a node at the model's opset; ``None`` for an unknown operator."""
        key = id(node)
        if key not in self._signatures:
            self._signatures[key] = signature(node, self.model.opset_imports)
        return self._signatures[key]

    def wide(self, value: ir.Value | None) -> bool:
        """Return whether a value is a tensor of wide type: FP32, FP64 or bfloat16."""
        return value is not None and is_wide(self.types.get(value))

    def wide_inputs(self, node: ir.Node) -> Iterator[tuple[int, ir.Value, Port | None]]:
        """Yield the inputs of wide type (FP32, FP64, bfloat16): index, value, and port (types the operator allows).

        The port is ``None`` for an unknown operator.
        """
        known = self.signature(node)
        for index, value in enumerate(node.inputs):
            if value is not None and self.wide(value):
                yield index, value, known.input(index) if known else None

    def wide_outputs(self, node: ir.Node) -> Iterator[tuple[int, ir.Value, Port | None]]:
        """Yield the outputs of wide type (FP32, FP64, bfloat16): index, value, and port (types the operator allows).

        The port is ``None`` for an unknown operator.
        """
        known = self.signature(node)
        for index, value in enumerate(node.outputs):
            if self.wide(value):
                yield index, value, known.output(index) if known else None

    def is_float(self, node: ir.Node) -> bool:
        """Return whether a node reads or writes values of wide type (FP32, FP64, bfloat16)."""
        return any(True for _ in self.wide_inputs(node)) or any(True for _ in self.wide_outputs(node))

    def constant(self, value: ir.Value | None) -> ir.TensorProtocol | None:
        """The tensor of a constant value: an initializer that no caller can replace, or a Constant node's output.

        ``None`` for other values.
        """
        return constant_of(value, self.model.ir_version)

    @property
    def _tables(self) -> Tables | None:
        """The kernels of the target's release; ``None`` without a target, or if they are unknown."""
        return self.target.tables if self.target is not None and not self.target.opset_only else None

    def half_kernel(self, node: ir.Node, label: str) -> bool:
        """Return whether DirectML's kernel for a node supports FP16 for the type variable ``label``.

        The kernel is that of the node's operator version, or else the newest. True if the kernels are unknown, or if
        there is none for the operator.
        """
        rows = self._tables.dml.get(operator_key(node)) if self._tables is not None else None
        known = self.signature(node)
        if not rows or known is None:
            return True
        allowed = (rows.get(known.since) or rows[max(rows)]).types.get(label)
        return allowed is None or "float16" in allowed

    def exact_kernel(self, node: ir.Node) -> bool:
        """Return whether DirectML has a kernel of exactly the node's operator version; true if kernels are unknown."""
        known = self.signature(node)
        return self._tables is None or known is None or known.since in self._tables.dml.get(operator_key(node), {})

    def on_directml(self, node: ir.Node) -> bool:
        """Return whether DirectML can run the operator: it has a kernel of some version, or ONNX Runtime expands it.

        True if the kernels are unknown.
        """
        if self._tables is None or operator_key(node) in self._tables.dml:
            return True
        known = self.signature(node)
        return known is not None and known.is_function and operator_key(node) not in self._tables.cpu


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a Constant node if it is floating-point; otherwise ``None``."""
    tensor = any_constant_tensor(node)
    return tensor if tensor is not None and tensor.dtype in _FLOATS else None


def set_constant_tensor(node: ir.Node, tensor: ir.TensorProtocol) -> None:
    """Set the attribute ``value`` of a Constant or ConstantOfShape node, in place."""
    for name in ("value_float", "value_floats"):
        node.attributes.pop(name, None)
    node.attributes["value"] = ir.AttrTensor("value", tensor)


def scalar(tensor: ir.TensorProtocol | None) -> float | None:
    """The number in a tensor of one element; ``None`` for ``None``, a tensor of another size, or text."""
    if tensor is None or tensor.size != 1 or tensor.dtype == ir.DataType.STRING:
        return None
    return float(np.asarray(tensor.numpy()).reshape(-1)[0])
