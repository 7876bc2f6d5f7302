"""Cut a large model into pieces that run one after the other, so that its weights are never in memory together.

Running a 5 GB model on the CPU needs 5 GB, even with a mapped file; in pieces of 128 MB it needs some 250 MB. The
values are those of the whole model: the same nodes run on the same values, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import onnx
import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.analysis.shapes import Inference
from dmlprep.graph.model import protos
from dmlprep.graph.model.frozen import Frozen, thaw
from dmlprep.graph.model.model import Model
from dmlprep.graph.model.walk import attribute_graphs

PIECE_BYTES = 128 << 20
"""The most weights of one piece, in bytes; more if a single node has more, or if no cut is possible."""

WHOLE_BYTES = 1 << 30
"""The most weights, in bytes, of a model that runs whole: a gigabyte of memory is common, and each load takes time."""

V = TypeVar("V")
"""The data of a value: an array, or one array for each of several feeds."""


@dataclass(frozen=True)
class Segment:
    """Consecutive nodes of the main graph, from ``start`` to before ``stop``, and the names of inputs and outputs."""

    start: int
    stop: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def _reads(node: ir.Node) -> Iterator[ir.Value]:
    """Yield every value that a node or the nodes of its bodies read, and the outputs of its bodies.

    Values of the bodies themselves are included. A value may come more than once.
    """
    stack = [node]
    while stack:
        current = stack.pop()
        yield from (v for v in current.inputs if v is not None)
        for _, body in attribute_graphs(current):
            stack.extend(body)
            yield from body.outputs


def segments(model: Model, piece_bytes: int = PIECE_BYTES, known: Knowledge | None = None) -> list[Segment]:
    """Return the pieces of a model's main graph, each with at most ``piece_bytes`` of weights where possible.

    A cut is only where every value across it is a tensor of known type. ``known`` are the inferred types;
    without them, they are inferred here.

    Raises:
        ModelRefused, ToolFailed: without ``known``, as ``Inference.of``.
    """
    graph = model.ir.graph
    nodes = list(graph)
    inferred = known or Inference.of(model.ir)
    places = {v: i for i, node in enumerate(nodes) for v in node.outputs}
    feeds = {v for v in graph.inputs if v.name not in graph.initializers}
    reads = [[*dict.fromkeys(v for v in _reads(n) if v in places or v in feeds or v.is_initializer())] for n in nodes]
    last = {v: i for i, values in enumerate(reads) for v in values} | dict.fromkeys(graph.outputs, len(nodes))

    def between(start: int, stop: int) -> Segment:
        read = [v for values in reads[start:stop] for v in values if v in feeds or places.get(v, stop) < start]
        ins = dict.fromkeys(v.name or "" for v in read)
        outs = [v.name or "" for node in nodes[start:stop] for v in node.outputs if last.get(v, -1) >= stop]
        return Segment(start, stop, tuple(ins), tuple(outs))

    pieces: list[Segment] = []
    start = 0
    live: set[ir.Value] = set()
    weights: dict[ir.Value, int] = {}
    for i, node in enumerate(nodes):
        new = {v: v.const_value.nbytes for v in reads[i] if v.is_initializer() and v.const_value is not None}
        if i > start and sum({**weights, **new}.values()) > piece_bytes and all(map(inferred.dtype, live)):
            pieces.append(between(start, i))
            start, weights = i, {}
        weights.update(new)
        live.update(v for v in node.outputs if last.get(v, -1) > i)
        live = {v for v in live if last[v] > i}
    pieces.append(between(start, len(nodes)))
    return pieces


def _piece(frozen: Frozen, segment: Segment, types: Mapping[str, onnx.TypeProto]) -> Model:
    whole = frozen.proto
    proto = onnx.ModelProto(ir_version=max(whole.ir_version, 4), functions=whole.functions)
    proto.opset_import.extend(whole.opset_import)
    proto.graph.name = whole.graph.name or "graph"
    proto.graph.node.extend(whole.graph.node[segment.start : segment.stop])
    used = {name for node in proto.graph.node for name in _names(node)}
    proto.graph.initializer.extend(t for t in whole.graph.initializer if t.name in used)
    for names, values in ((segment.inputs, proto.graph.input), (segment.outputs, proto.graph.output)):
        values.extend(onnx.ValueInfoProto(name=name, type=types.get(name)) for name in names)
    return Model(thaw(Frozen(proto, frozen.tensors)))


def _names(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for body in protos.bodies(node):
        yield from (v.name for v in body.output)
        for inner in body.node:
            yield from _names(inner)


def run_segments(
    run: Callable[[Model, Mapping[str, V]], dict[str, V]],
    model: Model,
    feeds: Mapping[str, V],
    piece_bytes: int | None = None,
) -> dict[str, V]:
    """Run a model piece by piece, and return its outputs by name.

    Args:
        run: runs one model on feeds (inputs by name) and returns all its outputs by name.
        piece_bytes: the most weights of one piece. If ``None``, models up to ``WHOLE_BYTES`` run whole, and larger ones
            in pieces of ``PIECE_BYTES``.

    Raises:
        ModelRefused, ToolFailed: as ``Inference.of``. Errors of ``run`` pass through.
    """
    if piece_bytes is None and model.statistics().nbytes <= WHOLE_BYTES:
        return run(model, feeds)
    known = Inference.of(model.ir)
    cuts = segments(model, PIECE_BYTES if piece_bytes is None else piece_bytes, known)
    if len(cuts) == 1:
        return run(model, feeds)
    types = {v.name: proto for v, proto in known.types.items() if v.name}
    for value in model.ir.graph.outputs:
        if value.name and value.name not in types and value.type is not None:
            types[value.name] = ir.serde.serialize_type(value.type)
    frozen = model.snapshot()
    values = dict(feeds)
    wanted = [v.name or "" for v in model.ir.graph.outputs]
    needed_after = [{n for later in cuts[i + 1 :] for n in later.inputs} | set(wanted) for i in range(len(cuts))]
    for segment, needed in zip(cuts, needed_after, strict=True):
        values.update(run(_piece(frozen, segment, types), {name: values[name] for name in segment.inputs}))
        values = {name: array for name, array in values.items() if name in needed}
    return {name: values[name] for name in wanted}
