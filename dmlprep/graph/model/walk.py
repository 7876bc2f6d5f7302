"""Walk a model: every graph, node and tensor, with subgraphs and model-local functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

GraphLike = ir.Graph | ir.Function

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_TENSORS = (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS)


def attribute_graphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """Yield (attribute name, subgraph) for each subgraph of a node: ``then_branch``, or ``graphs[0]`` in a list."""
    for name, attr in node.attributes.data.items():  # the dict itself: looking twice at each costs more than the walk
        if attr.type not in _GRAPHS or attr.is_ref():
            continue
        if attr.type == ir.AttributeType.GRAPH:
            yield name, attr.as_graph()
        else:
            yield from ((f"{name}[{i}]", graph) for i, graph in enumerate(attr.as_graphs()))


def join_path(path: str, name: str) -> str:
    """Return a name with the path of its graph: ``If_3/then_branch/Pow_1``; the bare name in the main graph."""
    return f"{path}/{name}" if path else name


def _below(path: str, graph: GraphLike) -> Iterator[tuple[str, GraphLike]]:
    # An explicit stack: the model's author chooses the nesting depth.
    stack: list[tuple[str, GraphLike]] = [(path, graph)]
    while stack:
        path, graph = stack.pop()
        yield path, graph
        inner: list[tuple[str, GraphLike]] = []
        for node in graph:
            if node.attributes.data:  # most nodes have none, and a generator for each of them costs more than the walk
                inner += [(join_path(path, f"{label(node)}/{name}"), sub) for name, sub in attribute_graphs(node)]
        stack.extend(reversed(inner))


def graphs(model: ir.Model) -> Iterator[tuple[str, GraphLike]]:
    """Yield (path, graph) for every graph of the model.

    The path is ``""`` for the main graph, ``If_3/then_branch`` for a subgraph, ``function my::Gelu2`` for a model-local
    function.
    """
    yield from _below("", model.graph)
    for function in model.functions.values():
        yield from _below(f"function {function.domain}::{function.name}", function)


def main_graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """Yield the main graph and its subgraphs, outer before inner.

    Functions are left out, because calls share their bodies.
    """
    stack = [model.graph]
    while stack:
        graph = stack.pop()
        yield graph
        for node in graph:
            stack.extend(sub for _, sub in attribute_graphs(node))


def nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every node of every graph, subgraph and function."""
    tops: list[GraphLike] = [model.graph, *model.functions.values()]
    for top in tops:
        stack = [top]  # as in _below, without the paths
        while stack:
            graph = stack.pop()
            yield from graph
            inner = [sub for node in graph if node.attributes.data for _, sub in attribute_graphs(node)]
            stack.extend(reversed(inner))


def nodes_by_path(model: ir.Model) -> dict[str, ir.Node]:
    """Return path of a node -> node, for all nodes; if two nodes of one graph have the same name, the first."""
    by_path: dict[str, ir.Node] = {}
    for path, graph in graphs(model):
        for node in graph:
            by_path.setdefault(join_path(path, label(node)), node)
    return by_path


def count_nodes(model: ir.Model) -> int:
    """Return how many nodes the model has, subgraphs and functions included."""
    return sum(len(graph) for _, graph in graphs(model))


def label(node: ir.Node) -> str:
    """Return a name for a node: its own, or its operator and first output where it has none."""
    return str(node.name or f"{node.op_type}({next((v.name for v in node.outputs if v.name), '')})")


@dataclass(frozen=True)
class Replaced:
    """A record of a replaced tensor: the value or node that has it, and the old tensor or attribute."""

    holder: ir.Value | ir.Node
    was: ir.TensorProtocol | ir.Attr

    def undo(self) -> None:
        """Put the old tensor back."""
        if isinstance(self.was, ir.Attr):
            self.holder.attributes[self.was.name] = self.was  # type: ignore[union-attr]
        else:
            self.holder.const_value = self.was  # type: ignore[union-attr]


def map_tensors(
    model: ir.Model, change: Callable[[ir.TensorProtocol], ir.TensorProtocol], *, attributes: bool = True
) -> list[Replaced]:
    """Replace each initializer, and with ``attributes`` each tensor attribute, by ``change(tensor)``, in place.

    Return a record of each replacement; none for a tensor that ``change`` returns itself.
    """
    replaced: list[Replaced] = []
    for _, graph in graphs(model):
        if isinstance(graph, ir.Graph):
            for value in graph.initializers.values():
                was = value.const_value
                if was is not None and (now := change(was)) is not was:
                    value.const_value = now
                    replaced.append(Replaced(value, was))
        if not attributes:
            continue
        for node in graph:
            for name, attr in list(node.attributes.data.items()):
                if attr.type not in _TENSORS or attr.is_ref() or attr.value is None:
                    continue
                one = attr.type == ir.AttributeType.TENSOR
                old = [attr.value] if one else list(attr.value)
                new = [change(t) for t in old]
                if any(a is not b for a, b in zip(new, old, strict=True)):
                    node.attributes[name] = ir.Attr(name, attr.type, new[0] if one else new, attr.doc_string)
                    replaced.append(Replaced(node, attr))
    return replaced


def tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Yield every tensor of the model: initializers and tensor attributes of all graphs."""
    every: list[ir.TensorProtocol] = []

    def note(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        every.append(tensor)
        return tensor

    map_tensors(model, note)
    yield from every
