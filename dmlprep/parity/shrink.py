"""A part that does not load, made smaller: branches and bodies opened, nodes left out or bypassed, operands dropped."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from dmlprep.metrics import TOLERANCES
from dmlprep.model import Model
from dmlprep.model.walk import attribute_graphs, graphs
from dmlprep.parity.candidate import Device
from dmlprep.parity.graph_cuts import clean, declare, subset
from dmlprep.parity.probe import Prober
from dmlprep.rewriting.builder import as_initializer, move_readers, replace_outputs

__all__ = ["Shrinker"]

Array = np.ndarray[Any, Any]

_RUNS = 80
"""Sessions that the search may open besides those that found the part."""

_BROADCAST = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Where")
_MANY = ("Concat", "Sum", "Mean", "Max", "Min")


class Shrinker:
    """Tries smaller models that fail as the part does, and keeps those that do.

    A smaller model must fail with the same error on the device, and run on the CPU.

    Attributes:
        model: the smallest so far.
        fed: its inputs.
        said: what the runtime said of it.
        bypassed: how many nodes have been left out of the middle, so that what reads them reads their input.
    """

    def __init__(
        self,
        prober: Prober,
        model: Model,
        fed: dict[str, Array],
        said: str,
        device: Device,
        progress: Callable[[float, str], None],
    ) -> None:
        self.model, self.fed, self.said, self.bypassed = model, fed, said, 0
        self._prober, self._device, self._progress = prober, device, progress
        self._error, self._most = _error(said), prober.runs + _RUNS
        every = [v for _, graph in graphs(model.ir) for n in graph for v in n.outputs]
        self._dead = {v.name for v in every if v.name and not v.uses() and not v.is_graph_output()}

    def shrink(self) -> None:
        """Make the model as small as the number of runs allows."""
        only = [n for n in self.model.ir.graph if n.op_type != "Constant"]
        if len(only) < 2 and not self.model.ir.functions and not any(True for n in only for _ in attribute_graphs(n)):
            return
        if self.model.ir.functions:
            model = self.model.copy()
            InlinePass()(model.ir)
            self._try(model, self.fed)
        while self._opened():
            pass
        self._near_the_end()
        self._shorten_constants()
        self._bypass(only_spine=True)
        self._drop_operands()
        self._leave_out()
        self._bypass(only_spine=False)
        self._drop_operands()

    def _try(self, model: Model, fed: dict[str, Array]) -> bool:
        """Keep a smaller model if it fails as the part does."""
        if self._prober.runs >= self._most or not model.ir.graph.outputs:
            return False
        self._progress(0.5, f"run {self._prober.runs + 1}, {len(self.model.ir.graph)} nodes left")
        fed = {v.name or "": fed[v.name or ""] for v in model.ir.graph.inputs}
        bound = TOLERANCES["loose"]
        said = self._prober.shows(model, fed, {}, bound, self._device)[1]
        if not said or _error(said) != self._error:
            return False
        if self._device != "cpu" and self._prober.shows(model, fed, {}, bound, "cpu")[1]:
            return False
        self.model, self.fed, self.said = model, fed, said
        return True

    def _forget(self, model: Model) -> None:
        """Drop what is noted of sizes, which a change made wrong, and what nothing needs any more."""
        for node in model.ir.graph:
            for value in node.outputs:
                value.shape = None
        clean(model.ir, self._dead)
        declare(model.ir, model.ir.graph.outputs)

    def _opened(self) -> bool:
        """Put the branch of an If, or the body of a Loop, in the place of its node."""
        for index, node in enumerate(self.model.ir.graph):
            bodies = [name for name, _ in attribute_graphs(node)] if node.op_type in ("If", "Loop") else []
            for name in bodies:
                model = self.model.copy()
                _open(model.ir.graph, list(model.ir.graph)[index], name)
                self._forget(model)
                if self._try(model, self.fed):
                    return True
        return False

    def _values(self) -> dict[str, Array]:
        """Every value of the model, from the CPU; none where it does not run there."""
        from dmlprep.runtime import SessionFailure, SessionOptions

        model = self.model.copy()
        graph = model.ir.graph
        have = {id(v) for v in graph.outputs}
        graph.outputs.extend(v for n in graph for v in n.outputs if v.name and id(v) not in have and v.type is not None)
        try:
            found = self._prober.part(model, "cpu", SessionOptions(optimization="basic"), self.fed, candidate=False)
        except SessionFailure:
            return {}
        return {**self.fed, **found}

    def _near_the_end(self) -> None:
        """Leave out the nodes that are far from the end, by halves."""
        nodes, values = list(self.model.ir.graph), self._values()
        places = {id(node): i for i, node in enumerate(nodes)}
        far = [0] * len(nodes)
        for i in reversed(range(len(nodes))):
            users = [places[id(u)] for v in nodes[i].outputs for u, _ in v.uses() if id(u) in places]
            far[i] = min((far[u] + 1 for u in users), default=0)
        whole, low, high = self.model, -1, max(far, default=0)
        while values and high - low > 1:
            middle = (low + high) // 2
            if self._try(*subset(whole, {i for i, d in enumerate(far) if d <= middle}, values)):
                high = middle
            else:
                low = middle

    def _leave_out(self) -> None:
        """Leave out more and more, smaller and smaller groups of neighbouring nodes."""
        parts, values = 2, self._values()
        while values and len(self.model.ir.graph) > 1:
            count = len(self.model.ir.graph)
            size = max(1, -(-count // parts))
            for start in range(0, count, size):
                if self._try(*subset(self.model, set(range(count)) - set(range(start, start + size)), values)):
                    parts = max(2, parts - 1)
                    break
            else:
                if size == 1:
                    return
                parts = min(2 * parts, count)

    def _shorten_constants(self) -> None:
        """Use one element of the constants that are broadcast, so that they fit other sizes."""
        model = self.model.copy()
        for node in model.ir.graph:
            for index, value in enumerate(node.inputs if node.op_type in _BROADCAST else ()):
                tensor = value.const_value if value is not None and value.is_initializer() else None
                if value is not None and tensor is not None and tensor.size > 1:
                    one = ir.Value(name=f"{node.outputs[0].name}_one_{index}")
                    array = tensor.numpy().reshape(-1)[:1]
                    node.replace_input_with(index, as_initializer(model.ir.graph, one, ir.Tensor(array, name=one.name)))
        self._forget(model)
        self._try(model, self.fed)

    def _bypass(self, *, only_spine: bool) -> None:
        """Let what reads a node read its first input.

        Args:
            only_spine: only nodes that everything behind them goes through.
        """
        index = 0
        while index < len(self.model.ir.graph):
            node = list(self.model.ir.graph)[index]
            one = len(node.outputs) == 1 and bool(node.inputs) and not node.outputs[0].is_graph_output()
            if one and (not only_spine or _is_spine(self.model.ir.graph, index)):
                model = self.model.copy()
                place = list(model.ir.graph)[index]
                source = place.inputs[0]
                if source is not None:
                    move_readers(place.outputs[0], source)
                    model.ir.graph.remove(place, safe=True)
                    self._forget(model)
                    if self._try(model, self.fed):
                        self.bypassed += 1
                        continue
            index += 1

    def _drop_operands(self) -> None:
        """Leave fewer operands of those that may be many, by halves."""
        for name in [n.outputs[0].name for n in reversed(self.model.ir.graph) if n.op_type in _MANY]:
            while self._halved(name):
                pass

    def _halved(self, name: str | None) -> bool:
        node = next((n for n in self.model.ir.graph if n.outputs[0].name == name), None)
        count = len(node.inputs) if node is not None else 0
        half = -(-count // 2)
        for kept in (range(half), range(count - half, count)) if count > 1 else ():
            model = self.model.copy()
            place = next(n for n in model.ir.graph if n.outputs[0].name == name)
            operands = [place.inputs[i] for i in kept]
            place.resize_inputs(half)
            for index, operand in enumerate(operands):
                place.replace_input_with(index, operand)
            self._forget(model)
            if self._try(model, self.fed):
                return True
        return False


def _error(said: str) -> tuple[str, ...]:
    """What two failures have in common: codes and places in the source, or the text."""
    return tuple(sorted(set(re.findall(r"\b8[0-9A-Fa-f]{7}\b|\w+\.cpp\(\d+\)", said)))) or (said,)


def _is_spine(graph: ir.Graph, index: int) -> bool:
    """Whether only one value lives across the cut behind a node."""
    nodes = list(graph)
    behind = {id(n) for n in nodes[index + 1 :]}
    made = [v for n in nodes[: index + 1] for v in n.outputs]
    return sum(v.is_graph_output() or any(id(u) in behind for u, _ in v.uses()) for v in made) == 1


def _open(graph: ir.Graph, node: ir.Node, name: str) -> None:
    """Put the nodes of a body in the place of a node: of a Loop one turn."""
    body = node.attributes[name].as_graph()
    if node.op_type == "Loop":
        first: list[ir.Value | None] = [
            as_initializer(graph, ir.Value(name=f"{node.name}_turn"), ir.Tensor(np.array(0, np.int64))),
            as_initializer(graph, ir.Value(name=f"{node.name}_go_on"), ir.Tensor(np.array(True))),
        ]
        for inner, outer in zip(body.inputs, [*first, *node.inputs[2:]], strict=True):
            move_readers(inner, outer)
    taken = set(graph.initializers) | {v.name for n in graph for v in n.outputs} | {v.name for v in graph.inputs}
    results = list(body.outputs)[1:] if node.op_type == "Loop" else list(body.outputs)
    body.outputs.clear()
    for key, value in list(body.initializers.items()):
        del body.initializers[key]
        value.name = key if key not in taken else f"{node.name}_{key}"
        graph.register_initializer(value)
    inner_nodes = list(body)
    body.remove(inner_nodes)
    for inner_node in inner_nodes:
        for value in inner_node.outputs:
            value.name = f"{node.name}_{value.name}" if value.name in taken else value.name
    graph.insert_before(node, inner_nodes)
    for old, new in zip(node.outputs, results, strict=True):
        move_readers(old, new)
        replace_outputs(graph, old, new)
    graph.remove(node, safe=True)
