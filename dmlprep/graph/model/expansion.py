"""Count the nodes and bytes that a model would have with its function calls inlined, without inlining them.

ONNX Runtime inlines the calls when it loads a model, and placement, FP16 and lowering need that too. If each function
calls the one before it twice, the count doubles with each level: a file of 3 KB can become 2**40 nodes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from math import prod

import onnx

from dmlprep.graph.model import protos
from dmlprep.graph.model.bounds import LESS_NESTED, MAX_NESTING, invalid, too_large
from dmlprep.graph.model.budget import Budget

_Key = tuple[str, str, str]
"""Domain, name and overload of a function."""

_SIZES = {k: onnx.helper.tensor_dtype_to_np_dtype(k).itemsize for k in onnx.TensorProto.DataType.values() if k}
"""Element type -> size of an element in bytes."""


@dataclass
class _Body:
    """The size of a graph or a function; first without the bodies of its calls, later with them.

    Attributes:
        names: number of places that name a value or a node; inlining adds the name of the call to each of them.
        depth: nesting depth of bodies of If, Loop and Scan.
        calls: for each call: the function, the length of the call's own name, and how many bodies enclose it.
    """

    nodes: int = 0
    nbytes: int = 0
    names: int = 0
    depth: int = 0
    calls: list[tuple[_Key, int, int]] = field(default_factory=list)


def spend_on_functions(proto: onnx.ModelProto, budget: Budget, where: str) -> None:
    """Count in ``budget`` the nodes and bytes that inlining all calls of model-local functions would add.

    Raises:
        InputError: DP003, functions call one another in a cycle.
        ModelRefused: DP014, they exceed the model's budget; DP016, they nest graphs too deep.
    """
    if not proto.functions:
        return
    nodes = {_key(f.domain, f.name, f.overload): f.node for f in proto.functions}
    functions = {key: _read(of_function, nodes) for key, of_function in nodes.items()}
    for key in _callees_first(functions, where):
        _add_calls(functions[key], functions)
    main = _Body(calls=_read(proto.graph.node, nodes).calls)
    _add_calls(main, functions)
    if main.depth >= MAX_NESTING:
        deep = f"graphs are nested {main.depth + 1} deep after its functions are expanded"
        raise too_large(f"{deep}, at most {MAX_NESTING} are allowed", where, LESS_NESTED)
    budget.spend(main.nbytes, main.nodes, what="its expanded functions", where=where)


def _key(domain: str, name: str, overload: str) -> _Key:
    return "" if domain == "ai.onnx" else domain, name, overload


def _all(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield every node, and how many bodies enclose it."""
    stack = [(nodes, 0)]
    while stack:
        inside, depth = stack.pop()
        for node in inside:
            yield node, depth
            stack += [(body.node, depth + 1) for body in protos.bodies(node)]


def _read(nodes: Iterable[onnx.NodeProto], known: Container[_Key]) -> _Body:
    body = _Body(nbytes=sum(node.ByteSize() for node in nodes))
    for node, depth in _all(nodes):
        body.depth = max(body.depth, depth)
        body.names += 1 + len(node.input) + len(node.output)
        body.nbytes += sum(_elsewhere(a.t) for a in node.attribute if a.HasField("t"))
        key = _key(node.domain, node.op_type, node.overload)
        if key in known:
            name = len(node.name) or len(node.op_type) + len(next(iter(node.output), ""))
            body.calls.append((key, name, depth))
        else:
            body.nodes += 1
    return body


def _elsewhere(tensor: onnx.TensorProto) -> int:
    """Return the size in bytes of a tensor whose values are outside the protobuf message; 0 for other tensors."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL or tensor.data_type not in _SIZES:
        return 0
    return int(prod(tensor.dims)) * _SIZES[tensor.data_type]


def _add_calls(body: _Body, functions: dict[_Key, _Body]) -> None:
    for key, name, depth in body.calls:
        called = functions[key]
        body.depth = max(body.depth, depth + called.depth)
        body.nodes += called.nodes
        body.names += called.names
        body.nbytes += called.nbytes + (name + 1) * called.names


def _callees_first(functions: dict[_Key, _Body], where: str) -> list[_Key]:
    """Return the functions, each after the functions that it calls.

    Raises:
        InputError: DP003, functions call one another in a cycle.
    """
    order: list[_Key] = []
    done: set[_Key] = set()
    for first in functions:
        path: dict[_Key, None] = {}
        stack: list[tuple[_Key, bool]] = [(first, False)]
        while stack:
            key, is_exit = stack.pop()
            if is_exit:
                path.pop(key)
                done.add(key)
                order.append(key)
            elif key in path:
                ring = [f"{domain}::{name}" for domain, name, _ in [*list(path)[list(path).index(key) :], key]]
                shown = ring if len(ring) <= 6 else [*ring[:3], "...", *ring[-2:]]
                raise invalid(f"functions call each other in a cycle: {' -> '.join(shown)}", where)
            elif key not in done:
                path[key] = None
                stack.append((key, True))
                stack += [(called, False) for called in dict.fromkeys(c for c, *_ in functions[key].calls)]
    return order
