"""Fold chains of constants: nodes that compute a small result from constants alone, through larger intermediate values.

An example are position embeddings that a Resize shrinks. onnxsim judges each node alone: it reads no weights, and folds
no node into more than ``constant_kib``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
import onnx_ir as ir

from dmlprep.core.errors import CheckNotRun, ModelRefused
from dmlprep.graph.analysis.knowledge import Knowledge, constant_of
from dmlprep.graph.model import Model
from dmlprep.graph.model.random_ops import RANDOM
from dmlprep.graph.model.runner import Runner
from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.graph.rewriting.builder import as_initializer, move_readers
from dmlprep.graph.rewriting.names import Names
from dmlprep.graph.rewriting.unread import remove_dead
from dmlprep.graph.rewriting.weights import KEPT_BYTES
from dmlprep.portable.arrays import Array

_MOST_NODES = 500
"""Most nodes of one chain; longer ones are not position embeddings."""

_LARGEST_LINK = 64 << 20
_ROOM = 256 << 20  # bytes of all ends: they are in memory until the model is saved

_EXCLUDED = RANDOM | {"Constant", "DequantizeLinear", "QuantizeLinear"}


class _Chains:
    """The nodes of the main graph that compute from constants alone, and the values that are worth folding."""

    def __init__(self, model: ir.Model, slow: Callable[[Knowledge], set[ir.Node]]) -> None:
        self.model = model
        self.find_slow = slow
        self.nodes: dict[ir.Node, int] = {}
        for place, node in enumerate(model.graph):
            plain = not node.domain and node.op_type not in _EXCLUDED and not any(True for _ in attribute_graphs(node))
            reads = [v for v in node.inputs if v is not None]
            if plain and reads and all(self.is_start(v) or v.producer() in self.nodes for v in reads):
                self.nodes[node] = place

    @cached_property
    def known(self) -> Knowledge:
        return Knowledge.swept(self.model)

    @cached_property
    def slow(self) -> set[ir.Value]:
        """The results of chains that contain a slow node."""
        nodes, results = self.find_slow(self.known), set[ir.Value]()
        for node in self.nodes:
            if node in nodes or any(v in results for v in node.inputs):
                results.update(node.outputs)
        return results

    def is_start(self, value: ir.Value) -> bool:
        return constant_of(value, self.model.ir_version) is not None

    def nbytes(self, value: ir.Value) -> int:
        """Return the size of a value in bytes; if unknown, a number too large for folding."""
        tensor = constant_of(value, self.model.ir_version)
        if tensor is not None:
            return tensor.nbytes
        sizes, dtype = self.known.static_shape(value), self.known.dtype(value)
        if sizes is None or dtype in (0, ir.DataType.STRING, ir.DataType.BFLOAT16):
            return _LARGEST_LINK + 1
        return math.prod(sizes) * ir.DataType(dtype).bitwidth // 8

    def numpy_type(self, value: ir.Value) -> np.dtype:
        return ir.DataType(self.known.dtype(value)).numpy()

    def cone(self, ends: Iterable[ir.Value]) -> list[ir.Node]:
        """Return the nodes that compute the values ``ends`` from constants, in reverse graph order.

        The search stops after ``_MOST_NODES``.
        """
        behind: set[ir.Node] = set()
        stack = [v.producer() for v in ends]
        while stack and len(behind) <= _MOST_NODES:
            node = stack.pop()
            if node is not None and node in self.nodes and node not in behind:
                behind.add(node)
                stack += [v.producer() for v in node.inputs if v is not None]
        return sorted(behind, key=self.nodes.__getitem__, reverse=True)

    def growth(self, ends: list[ir.Value], limit: int, most: int) -> int | None:
        """Return the bytes that the file grows by if the values ``ends`` become constants; ``None`` to fold nothing.

        If their chain reads weights, ``ends`` together must be smaller than the weights that become unused, or at most
        ``most`` bytes larger if all ``ends`` depend on slow nodes. Otherwise each end must have at most ``limit``
        bytes, and an intermediate value more than that. ``None`` for graph outputs, for more than ``_MOST_NODES``
        nodes, and if a value exceeds ``_LARGEST_LINK`` or has an unknown size.
        """
        cone = self.cone(ends)
        if not ends or len(cone) > _MOST_NODES or any(v.is_graph_output() for v in ends):
            return None
        dead: set[ir.Node] = set()
        for node in cone:
            if all(
                v in ends or (not v.is_graph_output() and all(u in dead for u, _ in v.uses())) for v in node.outputs
            ):
                dead.add(node)
        starts = {v for node in cone for v in node.inputs if v is not None and self.is_start(v)}
        weights = [v for v in starts if self.nbytes(v) > KEPT_BYTES]
        freed = [v for v in weights if not v.is_graph_output() and all(user in dead for user, _ in v.uses())]
        sizes, links = ([self.nbytes(v) for v in vs] for vs in (ends, [v for node in cone for v in node.outputs]))
        if max(links) > _LARGEST_LINK:
            return None
        grown = sum(sizes) - sum(map(self.nbytes, freed))
        if weights:
            return grown if grown < 0 or (grown <= most and self.slow.issuperset(ends)) else None
        return 0 if max(sizes) <= limit < max(links) else None

    def ends(self) -> list[list[ir.Value]]:
        """Return the groups of values to try to fold: all ends of chains, those with slow nodes, then single values.

        Single values come in reverse graph order.
        """
        values = [v for node in reversed(self.nodes) for v in node.outputs]
        outer = [v for v in values if any(user not in self.nodes for user, _ in v.uses())][: _MOST_NODES + 1]
        return [outer, [v for v in outer if v in self.slow], *([v] for v in values if v.uses())]


def fold_chains(
    model: Model, runner: Runner, limit: int, *, slow: Callable[[Knowledge], set[ir.Node]], slow_limit: int
) -> int:
    """Replace chains of constants by their results, in place, where ``_Chains.growth`` allows it.

    A chain also stays if its results exceed the model's budget or ``_ROOM``, or if ``runner`` cannot compute them.

    Args:
        runner: computes the results.
        limit: most bytes of a result if the chain reads no weights, but only has intermediate values larger than that.
        slow: returns the nodes that are worth a larger file.
        slow_limit: most bytes that all chains with slow nodes together may add to the file.

    Returns:
        the bytes that chains with slow nodes added.

    Raises:
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    chains, names, room, added = _Chains(model.ir, slow), Names(model.ir), _ROOM, 0
    folded: set[ir.Node] = set()
    for ends in chains.ends() if chains.nodes else ():
        cone, nbytes = set(chains.cone(ends)), sum(map(chains.nbytes, ends))
        if cone & folded or nbytes > room or not model.budget.affords(nbytes):
            continue
        if (growth := chains.growth(ends, limit, slow_limit - added)) is None:
            continue
        folded |= cone
        arrays = _computed(model, ends, runner)
        if [(a.nbytes, a.dtype) for a in arrays] != [(chains.nbytes(v), chains.numpy_type(v)) for v in ends]:
            continue
        model.budget.spend(nbytes, what="folded chains of constants", where="")
        room, added = room - nbytes, added + max(0, growth)
        for value, array in zip(ends, arrays, strict=True):
            name = value.name or ""
            value.name = names.value(f"{name}_before")
            move_readers(value, as_initializer(model.ir.graph, ir.Value(name=name), ir.Tensor(array, name=name)))
    if folded:
        remove_dead(model.ir)
    return added


def _computed(model: Model, ends: list[ir.Value], runner: Runner) -> list[Array]:
    """Return the arrays of values that follow from constants; an empty list if they cannot be computed."""
    part, names = model.copy(), [v.name or "" for v in ends]
    values = {v.name: v for node in part.ir.graph for v in node.outputs}
    part.ir.graph.outputs[:] = [values[name] for name in names]
    remove_dead(part.ir)
    part.ir.graph.inputs[:] = [v for v in part.ir.graph.inputs if v.uses()]
    try:
        arrays = runner.run(part, {}, names)
    except (CheckNotRun, ModelRefused):
        return []
    return [np.ascontiguousarray(arrays[name]) for name in names]
