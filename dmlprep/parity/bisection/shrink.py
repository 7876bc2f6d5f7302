"""Make a failing part of a model smaller: expand subgraphs, feed recorded values instead of nodes, drop operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.checking import infer_shapes
from dmlprep.graph.model.walk import attribute_graphs, graphs
from dmlprep.graph.rewriting.builder import as_initializer, move_readers, replace_outputs
from dmlprep.graph.rewriting.inlining import Inline
from dmlprep.metrics import TOLERANCES
from dmlprep.parity.bisection.graph_cuts import clean, declare, subset
from dmlprep.parity.bisection.probe import Prober
from dmlprep.portable.arrays import Array
from dmlprep.process.onnx_worker.door import OnnxError
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.runtime.ort_messages import signature

_RUNS = 80
"""Largest number of sessions that the search for a smaller part may open."""

_BROADCAST = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Where")
_MANY = ("Concat", "Sum", "Mean", "Max", "Min")


class Shrinker:
    """A search for a smaller model that still fails.

    A smaller model must fail with the same error on the device and, if that is not the CPU, run on the CPU.

    Attributes:
        model: the smallest failing model so far.
        fed: arrays for its inputs, by name.
        failure: ONNX Runtime's message for it.
        bypassed: number of nodes that were removed from the middle; their readers read the node's first input instead.
    """

    def __init__(
        self,
        prober: Prober,
        model: Model,
        fed: dict[str, Array],
        failure: str,
        device: SessionDevice,
        progress: Progress,
    ) -> None:
        self.model, self.failure, self.bypassed = model, failure, 0
        self.fed = {v.name or "": fed[v.name or ""] for v in model.ir.graph.inputs}
        self._prober, self._device, self._progress = prober, device, progress
        self._most = prober.runs + _RUNS
        self._recorded, self._tried = fed, set[tuple[str, str | None]]()
        self._sure = (model, self.fed, failure, 0)  # the smallest that is known to run on the CPU
        self._asked: Model | None = None  # the last model whose values were all recorded
        self._careful, self._infers = False, _infers(model)
        every = [v for _, graph in graphs(model.ir) for n in graph for v in n.outputs]
        self._dead = {v.name for v in every if v.name and not v.uses() and not v.is_graph_output()}

    def shrink(self) -> None:
        """Make ``model`` as small as the limit of runs allows; ``fed``, ``failure`` and ``bypassed`` follow it."""
        only = [n for n in self.model.ir.graph if n.op_type != "Constant"]
        if len(only) < 2 and not self.model.ir.functions and not any(True for n in only for _ in attribute_graphs(n)):
            return
        for step in (
            self._inline,
            self._open_all,
            self._near_the_end,
            self._free_constants,
            self._drop_operands,
            lambda: self._bypass(only_spine=True),
            self._leave_out,
            lambda: self._bypass(only_spine=False),
            self._drop_operands,
            self._leave_out,
        ):
            self._certain(step)

    def _certain(self, step: Callable[[], None]) -> None:
        """Call a method that makes the model smaller.

        If the result does not run on the CPU, restore the model, and call the method again with a check on the CPU
        after each change.
        """
        step()
        if self.model is not self._sure[0] and not self._runs_on_cpu(self.model, self.fed):
            self.model, self.fed, self.failure, self.bypassed = self._sure
            self._recorded, self._careful = self.fed, True
            self._tried.clear()
            step()
            self._careful = False
        self._sure = (self.model, self.fed, self.failure, self.bypassed)

    def _runs_on_cpu(self, model: Model, fed: dict[str, Array]) -> bool:
        return self._device == "cpu" or not self._prober.shows(model, fed, {}, TOLERANCES["loose"], "cpu")[1]

    def _try(self, model: Model, fed: dict[str, Array]) -> bool:
        """Replace ``model`` by a smaller one if that fails with the same error; return True if it was replaced.

        ``fed`` has arrays for its inputs, by name. Nothing runs, and the result is False, if the limit of runs is
        reached, or the smaller model has no outputs or contradictory types.
        """
        if self._prober.runs >= self._most or not model.ir.graph.outputs or (self._infers and not _infers(model)):
            return False
        self._progress(0.5, f"run {self._prober.runs + 1}, {len(self.model.ir.graph)} nodes left")
        inputs = {v.name or "": fed[v.name or ""] for v in model.ir.graph.inputs}
        message = self._prober.shows(model, inputs, {}, TOLERANCES["loose"], self._device)[1]
        if not message or signature(message) != signature(self.failure):
            return False
        if self._careful and not self._runs_on_cpu(model, inputs):
            return False
        self.model, self.fed, self.failure, self._recorded = model, inputs, message, fed
        return True

    def _first_time(self, what: str, node: ir.Node) -> bool:
        """Return True if the change ``what`` has not been tried at a node yet, and note that it has been tried now."""
        known = (what, node.outputs[0].name)
        new = known not in self._tried
        self._tried.add(known)
        return new

    def _forget(self, model: Model) -> None:
        """Remove the shapes of ``model``, in place, because a change made them wrong; and nodes that are not needed.

        The outputs get new shapes by inference.
        """
        for node in model.ir.graph:
            for value in node.outputs:
                value.shape = None
        clean(model.ir, self._dead)
        declare(model.ir, model.ir.graph.outputs)

    def _inline(self) -> None:
        """Try to replace the calls of functions by their bodies."""
        if self.model.ir.functions:
            model = self.model.copy()
            Inline()(model.ir)
            self._try(model, self.fed)

    def _open_all(self) -> None:
        while self._opened():
            pass

    def _opened(self) -> bool:
        """Try to replace an If by one of its branches, or a Loop by its body; return True if one was replaced."""
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
        """Return every value of the model by name, as the CPU computes it; empty if the model does not run there."""
        names = {v.name for n in self.model.ir.graph for v in n.outputs if v.name}
        if not names <= self._recorded.keys() and self._asked is not self.model:
            self._asked = self.model
            self._recorded = {**self.fed, **self._prober.every(self.model, self.fed)}
        return self._recorded if names & self._recorded.keys() else {}

    def _near_the_end(self) -> None:
        """Try to remove nodes that are far from the end of the graph, by bisection over the distance."""
        nodes, values = list(self.model.ir.graph), self._values()
        places = {node: i for i, node in enumerate(nodes)}
        far = [0] * len(nodes)
        for i in reversed(range(len(nodes))):
            users = [places[u] for v in nodes[i].outputs for u, _ in v.uses() if u in places]
            far[i] = min((far[u] + 1 for u in users), default=0)
        whole, low, high = self.model, -1, max(far, default=0)
        while values and high - low > 1:
            middle = (low + high) // 2
            if self._try(*subset(whole, {i for i, d in enumerate(far) if d <= middle}, values)):
                high = middle
            else:
                low = middle

    def _leave_out(self) -> None:
        """Try to remove single nodes, and all nodes that only they need; recorded values are fed instead.

        The removal that leaves the smallest model is tried first.
        """
        while values := self._values():
            nodes, fewer = list(self.model.ir.graph), []
            for index, node in enumerate(nodes):
                if node.op_type != "Constant" and ("leave out", node.outputs[0].name) not in self._tried:
                    model = self._without(index, values)
                    fewer.append((len(model.ir.graph), -index, model))
            for _, index, model in sorted(fewer, key=lambda item: item[:2]):
                if self._first_time("leave out", nodes[-index]) and self._try(model, values):
                    break
            else:
                return

    def _without(self, index: int, values: Mapping[str, Array]) -> Model:
        """Return the model without node ``index``, whose outputs become inputs.

        The node's own inputs become graph outputs only if the node computed a graph output.
        """
        node = list(self.model.ir.graph)[index]
        part = subset(self.model, set(range(len(self.model.ir.graph))) - {index}, values)[0]
        ends = {v.name for v in self.model.ir.graph.outputs}
        if any(v.is_graph_output() for v in node.outputs):
            ends |= {v.name for v in node.inputs if v is not None}
        if outputs := [v for v in part.ir.graph.outputs if v.name in ends]:
            part.ir.graph.outputs.clear()
            part.ir.graph.outputs.extend(outputs)
            clean(part.ir, self._dead)
        return part

    def _free_constants(self) -> None:
        """Try to make constants independent of sizes, so that more nodes can be removed later.

        Operands of broadcasting operators get one element, and negative starts of a Slice become positive.
        """
        model, values = self.model.copy(), self._values()
        graph = model.ir.graph
        for node in graph:
            for index, value in enumerate(node.inputs):
                array = _constant(value)
                if array is not None and array.size > 1 and node.op_type in _BROADCAST:
                    _replace_constant(graph, node, index, array.reshape(-1)[:1])
            data = node.inputs[0] if node.op_type == "Slice" else None
            if data is None or data.name not in values or len(node.inputs) < 4:
                continue
            starts, axes = _constant(node.inputs[1]), _constant(node.inputs[3])
            if starts is not None and axes is not None:
                sizes = np.array(values[data.name].shape)[axes]
                first = np.where(starts < 0, np.maximum(starts + sizes, 0), starts)
                _replace_constant(graph, node, 1, first.astype(starts.dtype))
        self._forget(model)
        self._try(model, self.fed)

    def _bypass(self, *, only_spine: bool) -> None:
        """Try to remove nodes by letting their readers read the node's first input.

        ``only_spine``: True to try only nodes after which no other value is needed.
        """
        index = 0
        while index < len(self.model.ir.graph):
            node = list(self.model.ir.graph)[index]
            one = len(node.outputs) == 1 and bool(node.inputs) and not node.outputs[0].is_graph_output()
            if one and (not only_spine or _is_spine(self.model.ir.graph, index)) and self._first_time("bypass", node):
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
        """Try to drop operands of nodes that accept any number (Concat, Sum): first halves, then smaller parts."""
        for name in [n.outputs[0].name for n in reversed(self.model.ir.graph) if n.op_type in _MANY]:
            while self._dropped(name):
                pass

    def _dropped(self, name: str | None) -> bool:
        node = next((n for n in self.model.ir.graph if n.outputs[0].name == name), None)
        count = len(node.inputs) if node is not None else 0
        size = count // 2
        while size:
            for start in reversed(range(0, count, size)):
                model = self.model.copy()
                place = next(n for n in model.ir.graph if n.outputs[0].name == name)
                operands = [v for i, v in enumerate(place.inputs) if not start <= i < start + size]
                place.resize_inputs(len(operands))
                for index, operand in enumerate(operands):
                    place.replace_input_with(index, operand)
                self._forget(model)
                if self._try(model, self.fed):
                    return True
            size //= 2
        return False


def _infers(model: Model) -> bool:
    """Return True if strict shape inference succeeds: types and shapes do not contradict each other."""
    try:
        infer_shapes(model.ir, strict=True)
    except OnnxError:
        return False
    return True


def _constant(value: ir.Value | None) -> Array | None:
    tensor = value.const_value if value is not None and value.is_initializer() else None
    return tensor.numpy() if tensor is not None else None


def _replace_constant(graph: ir.Graph, node: ir.Node, index: int, array: Array) -> None:
    value = ir.Value(name=f"{node.outputs[0].name}_free_{index}")
    node.replace_input_with(index, as_initializer(graph, value, ir.Tensor(array, name=value.name)))


def _is_spine(graph: ir.Graph, index: int) -> bool:
    """Return True if exactly one value is computed at or before node ``index`` and needed after it."""
    nodes = list(graph)
    behind = {id(n) for n in nodes[index + 1 :]}
    before = [v for n in nodes[: index + 1] for v in n.outputs]
    return sum(v.is_graph_output() or any(id(u) in behind for u, _ in v.uses()) for v in before) == 1


def _open(graph: ir.Graph, node: ir.Node, name: str) -> None:
    """Replace an If or Loop, in place, by the nodes of its subgraph ``name``; a Loop becomes one iteration."""
    body = node.attributes[name].as_graph()
    if node.op_type == "Loop":
        first: list[ir.Value | None] = [
            as_initializer(graph, ir.Value(name=f"{node.name}_turn"), ir.Tensor(np.array(0, np.int64))),
            as_initializer(graph, ir.Value(name=f"{node.name}_go_on"), ir.Tensor(np.array(True))),
        ]
        for inner, outer in zip(body.inputs, [*first, *node.inputs[2:]], strict=True):
            move_readers(inner, outer)
    names = set(graph.initializers) | {v.name for n in graph for v in n.outputs} | {v.name for v in graph.inputs}
    results = list(body.outputs)[1:] if node.op_type == "Loop" else list(body.outputs)
    body.outputs.clear()
    for key, value in list(body.initializers.items()):
        del body.initializers[key]
        value.name = key if key not in names else f"{node.name}_{key}"
        graph.register_initializer(value)
    inner_nodes = list(body)
    body.remove(inner_nodes)
    for inner_node in inner_nodes:
        for value in inner_node.outputs:
            value.name = f"{node.name}_{value.name}" if value.name in names else value.name
    graph.insert_before(node, inner_nodes)
    for old, new in zip(node.outputs, results, strict=True):
        move_readers(old, new)
        replace_outputs(graph, old, new)
    graph.remove(node, safe=True)
