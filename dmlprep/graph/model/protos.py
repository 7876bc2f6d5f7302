"""Walk a ModelProto: every graph, node and tensor, with subgraphs and functions; without recursion, at any depth."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def copy(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return an independent copy of a model."""
    new = onnx.ModelProto()
    new.CopyFrom(proto)
    return new


def refer(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    """Set the external data of a tensor, in place: ``length`` bytes from ``offset`` on in the file at ``location``.

    ``data_location`` must be EXTERNAL already.
    """
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the subgraphs of a node, without the subgraphs inside them."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the main graph and all subgraphs, those of functions included."""
    stack = [proto.graph, *(body for function in proto.functions for node in function.node for body in bodies(node))]
    while stack:
        graph = stack.pop()
        yield graph
        # Most nodes have no attributes, and a generator for each of them costs more than the walk.
        stack += [body for node in graph.node if node.attribute for body in bodies(node)]


def nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node, of functions and subgraphs too."""
    yield from (node for graph in graphs(proto) for node in graph.node)
    yield from (node for function in proto.functions for node in function.node)


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every initializer, and every tensor in an attribute, of all graphs and functions."""
    for graph in graphs(proto):
        yield from graph.initializer
    for node in nodes(proto):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
