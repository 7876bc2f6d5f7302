"""Rewrite MatMul and Gemm with a constant weight as com.microsoft::MatMulNBits, with the weight in few bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.graph.analysis.knowledge import constant_of
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.walk import label, main_graphs
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.precision.weights.blocks import Blocks, Part, PartTensor, Quantised

DOMAIN = "com.microsoft"

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
"""Element types of weights that can be rounded."""

_SIZES = (256, 128, 64, 32, 16)
"""The block sizes for which DirectML computes right results."""

_PASSING = frozenset({"Add", "Cast", "Clip", "Div", "Identity", "Mul", "Reshape", "Tanh", "Transpose"})
"""Operators between the last layer and the model's output, over which ``is_last`` looks: casts, scales, a soft cap."""


@dataclass(frozen=True)
class Choice:
    """Which weights are rounded to few bits, and how.

    Attributes:
        blocks: how each weight is rounded. If the block size does not divide the depth, the next smaller size that does
            is used.
        last: how a layer whose result is an output of the model is rounded; ``None`` leaves it unchanged.
        least: the smallest weight to round, in elements.
        keep: ``id(node)`` of nodes that stay unchanged -> why.
        convolutions: whether weights of convolutions are rounded, too.
    """

    blocks: Blocks
    last: Blocks | None
    least: int
    keep: Mapping[int, str]
    convolutions: bool = False


@dataclass
class Done:
    """The rewritten nodes of a model.

    Attributes:
        written: label of each rewritten MatMul or Gemm -> how its weight was rounded.
        unchanged: label of each node with a constant weight that stays unchanged -> why.
        before, after: size of the rounded weights in bytes, before and after.
        rows, convolutions: labels of the nodes that now read a table or a weight in 8 bits.
    """

    written: dict[str, Blocks] = field(default_factory=dict)
    unchanged: dict[str, str] = field(default_factory=dict)
    before: int = 0
    after: int = 0
    rows: list[str] = field(default_factory=list)
    convolutions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _MatMul:
    """A MatMul or Gemm with a constant weight: [depth, columns], or [columns, depth] if ``turned``."""

    node: ir.Node
    weight: ir.Value
    tensor: ir.TensorProtocol
    turned: bool
    depth: int
    columns: int


def write_matmuls(model: ir.Model, choice: Choice, budget: Budget) -> Done:
    """Rewrite each MatMul and Gemm with a large constant weight in place, with the weight in blocks of few bits.

    ``choice`` says which nodes stay unchanged. Returns what was done.
    """
    done = Done()
    writing = Writing(model, done, budget)
    for matmul in [*_products(model)]:
        name = label(matmul.node)
        why, blocks = _blocks(matmul, choice)
        if blocks is None:
            done.unchanged[name] = why
            continue
        make = partial(_parts, model, matmul, blocks, writing.names)
        parts = writing.parts(
            (id(matmul.tensor), matmul.turned, blocks), matmul.node, matmul.weight, matmul.tensor, make
        )
        _write(matmul, blocks, parts, writing.at(matmul.node))
        done.written[name] = blocks
    writing.finish(DOMAIN)
    return done


class Writing:
    """Adds weights in few bits to a model; a weight with several readers is stored, and counted in ``done``, once."""

    def __init__(self, model: ir.Model, done: Done, budget: Budget) -> None:
        self.model, self.done, self.budget, self.names = model, done, budget, Names(model)
        self._parts: dict[object, tuple[ir.Value, ...]] = {}
        self._weights: list[ir.Value] = []

    def at(self, node: ir.Node) -> Edit:
        """Return an editor that writes new nodes next to a node."""
        assert isinstance(node.graph, ir.Graph)
        return Edit(node.graph, node, self.names, self.budget)

    def parts(
        self,
        key: object,
        node: ir.Node,
        weight: ir.Value,
        tensor: ir.TensorProtocol,
        make: Callable[[Edit], tuple[ir.Value, ...]],
    ) -> tuple[ir.Value, ...]:
        """Return the parts (numbers, scales, perhaps zero points) of a rounded weight, initializers of the main graph.

        ``make`` creates them on the first call with a ``key``; later calls with the key share them. The sizes of the
        old and new weight are added to ``done``.
        """
        self._weights.append(weight)
        if key not in self._parts:
            self._parts[key] = make(Edit(self.model.graph, node, self.names, self.budget))
            self.done.before += int(tensor.nbytes)
            self.done.after += sum(int(v.const_value.nbytes) for v in self._parts[key] if v.const_value is not None)
        return self._parts[key]

    def finish(self, domain: str = "") -> None:
        """Remove the old weights that no node reads any more, and import ``domain`` (if set) into the model."""
        if self._weights and domain:
            self.model.graph.opset_imports.setdefault(domain, 1)
        drop_unused(self._weights)


def to_round(model: ir.Model, choice: Choice) -> dict[ir.Node, int]:
    """The nodes of the main graph that ``write_matmuls`` would rewrite -> size of the weight in bytes."""
    return {
        matmul.node: int(matmul.tensor.nbytes)
        for matmul in _products(model)
        if matmul.node.graph is model.graph and _blocks(matmul, choice)[1] is not None
    }


def _products(model: ir.Model) -> Iterator[_MatMul]:
    for graph in main_graphs(model):
        yield from filter(None, (_product(node, model.ir_version) for node in graph))


def too_small(tensor: ir.TensorProtocol, choice: Choice) -> str:
    """The reason, as a clause, why a weight is too small to be rounded; empty if it is large enough."""
    return f"its weight has fewer than {choice.least:,} elements (least)" if int(tensor.size) < choice.least else ""


def _product(node: ir.Node, version: int) -> _MatMul | None:
    if node.domain or node.op_type not in ("MatMul", "Gemm") or len(node.inputs) < 2:
        return None
    turned = node.op_type == "Gemm" and bool(node.attributes.get_int("transB", 0))
    weight = node.inputs[1]
    before = weight.producer() if weight is not None else None
    turn = before is not None and before.op_type == "Transpose" and not before.domain
    if before is not None and turn and list(before.attributes.get_ints("perm", [1, 0])) == [1, 0]:
        weight, turned = before.inputs[0], not turned
    tensor = constant_of(weight, version)
    if weight is None or tensor is None or tensor.dtype not in FLOATS or len(tensor.shape) != 2:
        return None
    first, second = (int(n) for n in tensor.shape.numpy())
    depth, columns = (second, first) if turned else (first, second)
    return _MatMul(node, weight, tensor, turned, depth, columns)


def _blocks(matmul: _MatMul, choice: Choice) -> tuple[str, Blocks | None]:
    """Return the reason why a product stays unchanged, and ``None``; otherwise "", and how its weight is rounded."""
    node = matmul.node
    if id(node) in choice.keep:
        return choice.keep[id(node)], None
    if small := too_small(matmul.tensor, choice):
        return small, None
    if node.op_type == "Gemm":
        plain = not node.attributes.get_int("transA", 0) and node.attributes.get_float("alpha", 1.0) == 1.0
        if not plain or node.attributes.get_float("beta", 1.0) != 1.0:
            return "its Gemm has transA, or an alpha or beta other than 1", None
    blocks = choice.blocks
    if is_last(node):
        if choice.last is None:
            return "it is the last layer", None
        blocks = choice.last
    size = next((s for s in _SIZES if s <= blocks.size and matmul.depth % s == 0), None)
    if size is None:
        return f"its depth of {matmul.depth} is not a multiple of any block size", None
    # DirectML reads packed zero points of 8 bits wrong where a column has an odd number of them (DP650).
    odd = blocks.bits == 8 and (matmul.depth // size) % 2 == 1
    return "", Blocks(blocks.bits, size, blocks.symmetric or odd)


def is_last(node: ir.Node) -> bool:
    """Return whether the node's result reaches a graph output, perhaps scaled, cast or reshaped on the way."""
    stack, visited = [node.outputs[0]], set[int]()
    while stack:
        value = stack.pop()
        if value.is_graph_output():
            return True
        for user, _ in value.uses():
            if user.op_type in _PASSING and not user.domain and id(user) not in visited:
                visited.add(id(user))
                stack.extend(user.outputs)
    return False


def _parts(model: ir.Model, matmul: _MatMul, blocks: Blocks, names: Names, edit: Edit) -> tuple[ir.Value, ...]:
    """Add the rounded weight of a product to the main graph: numbers, scales and, if not symmetric, zero points."""
    whole = Quantised(matmul.tensor, matmul.turned, blocks, matmul.tensor.dtype)
    wanted: tuple[Part, ...] = ("numbers", "scales") if blocks.symmetric else ("numbers", "scales", "zeros")
    base = matmul.weight.name or "weight"
    values = []
    for part in wanted:
        value = edit.initializer(PartTensor(whole, part), part)
        model.graph.initializers.pop(value.name or "")
        value.name = names.new(f"{base}_{part}")
        assert value.const_value is not None
        value.const_value.name = value.name
        model.graph.register_initializer(value)
        values.append(value)
    return tuple(values)


def _write(matmul: _MatMul, blocks: Blocks, parts: tuple[ir.Value, ...], edit: Edit) -> None:
    node, old = matmul.node, matmul.node.outputs[0]
    attributes = {"K": matmul.depth, "N": matmul.columns, "bits": blocks.bits, "block_size": blocks.size}
    result = edit.new_value("product", old.type or ir.TensorType(matmul.tensor.dtype), old.shape)
    product = edit.new_node("MatMulNBits", [node.inputs[0], *parts], [result], "product", attributes)
    product.domain = DOMAIN
    bias = node.inputs[2] if node.op_type == "Gemm" and len(node.inputs) > 2 else None
    edit.graph.insert_before(node, product)
    if bias is not None:
        result = edit.before("Add", [result, bias], like=result)
    edit.become(result)
    product.name = node.name or product.name


def drop_unused(values: list[ir.Value]) -> None:
    """Remove those of the weights ``values`` that are no longer read, with unused Constant and Transpose nodes."""
    for value in values:
        for user, _ in list(value.uses()):
            idle = not any(o.uses() or o.is_graph_output() for o in user.outputs)
            if user.op_type == "Transpose" and idle and user.graph is not None:
                user.graph.remove(user, safe=True)
        if value.uses() or value.is_graph_output() or value.is_graph_input():
            continue
        holder, held = value.producer(), value.graph
        if holder is not None and isinstance(holder.graph, ir.Graph):
            holder.graph.remove(holder, safe=True)
        elif isinstance(held, ir.Graph):
            held.initializers.pop(value.name or "", None)
