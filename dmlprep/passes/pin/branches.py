"""Replace each If whose condition is constant by the branch that runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import onnx_ir as ir

from dmlprep.graph.analysis.flow import chosen_branch
from dmlprep.graph.analysis.knowledge import Known
from dmlprep.graph.model.walk import attribute_graphs, main_graphs
from dmlprep.graph.rewriting.builder import replace_value
from dmlprep.graph.rewriting.names import Names
from dmlprep.graph.rewriting.unread import empty_bodies


def inline_branches(model: ir.Model, known: Known) -> int:
    """Replace every If with a constant condition by the branch that runs, in place, and return how many.

    Subgraphs and inserted branches are included; model-local functions are not.
    """
    count = 0
    names = _CountedNames(main_graphs(model))
    for graph in main_graphs(model):
        waiting = list(graph)
        while waiting:  # a branch may contain an If of its own
            chosen = [(node, chosen_branch(known, node)) for node in waiting]
            waiting = []
            for node, branch in chosen:
                if branch is not None:
                    waiting += _inline(names, graph, node, branch, known)
                    count += 1
    return count


class _CountedNames(Names):
    """A registry of names in which a name becomes free when the last graph that uses it is removed.

    This is needed because branches of an If may share names.
    """

    def __init__(self, graphs: Iterable[ir.Graph]) -> None:
        super().__init__()
        self._values, self._nodes = Counter[str](), Counter[str]()
        for graph in graphs:
            self.take(graph)
            for counts, names in zip((self._values, self._nodes), _names_in(graph), strict=True):
                counts.update(names)

    def release(self, graph: ir.Graph, *, inner: bool = True) -> None:
        """Count the names of a graph as unused; with ``inner``, also those of its subgraphs."""
        stack = [graph]
        while stack:
            at = stack.pop()
            values, nodes = _names_in(at)
            _drop(self._values, values, self.values)
            _drop(self._nodes, nodes, self.nodes)
            if inner:
                stack += [body for node in at for _, body in attribute_graphs(node)]

    def value(self, wish: str) -> str:
        name = super().value(wish)
        self._values[name] += 1
        return name

    def node(self, wish: str) -> str:
        name = super().node(wish)
        self._nodes[name] += 1
        return name


def _names_in(graph: ir.Graph) -> tuple[set[str], set[str]]:
    """The names of the values and of the nodes of one graph, without its subgraphs."""
    values = {v.name for v in graph.inputs if v.name} | set(graph.initializers)
    values.update(v.name for node in graph for v in node.outputs if v.name)
    return values, {node.name or "" for node in graph}


def _drop(counts: Counter[str], gone: Iterable[str], names: set[str]) -> None:
    for name in gone:
        counts[name] -= 1
        if counts[name] <= 0:
            names.discard(name)


def _inline(names: _CountedNames, graph: ir.Graph, node: ir.Node, branch: ir.Graph, known: Known) -> list[ir.Node]:
    """Replace ``node``, an If, by the nodes of ``branch`` in ``graph``, in place, and return the inserted nodes."""
    names.release(branch, inner=False)
    for name, value in list(branch.initializers.items()):
        del branch.initializers[name]
        value.name = names.value(name)
        graph.register_initializer(value)
    body, results = list(branch), list(branch.outputs)
    branch.outputs.clear()
    branch.remove(body)
    inner_values = {v for inner in body for v in inner.outputs}
    renamed: set[ir.Value] = set()
    for output, result in zip(node.outputs, results, strict=True):
        if result not in inner_values or result in renamed:
            body.append(ir.Node("", "Identity", [result], num_outputs=1, name=None))
            result = body[-1].outputs[0]
            known.set_type(result, known.types.get(output))
            if output in known.constants:
                known.set_constant(result, known.constants[output])
        # The model's declarations about the outer value (denotations, names of sizes) apply; shapes are inferred again
        # later.
        replace_value(output, result, "")
        renamed.add(result)
    for inner in body:
        if inner.name:
            inner.name = names.node(inner.name)
        for value in inner.outputs:
            if value not in renamed and value.name:
                value.name = names.value(value.name)
    graph.insert_before(node, body)
    for _, other in attribute_graphs(node):
        names.release(other)
    empty_bodies(node)
    graph.remove(node, safe=True)
    return body
