"""Expand fused operators of com.microsoft into plain nodes, in a copy of a model that is only used to compute results.

The reasons:

- The CPU has no kernel (GroupNorm).
- The CPU's kernel rounds, and DirectML's does not (MatMulNBits).
- The CPU's kernel overflows (MatMulInteger and others, also of ai.onnx).
- The FP16 emulation must round the output of each node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.grouped_norm import QUIRK as NORMS
from dmlprep.directml.targets.building import build, infer_contrib
from dmlprep.directml.targets.facts import NodeFacts
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import graphs, label
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.fusions.form import DOMAIN
from dmlprep.passes.fusions.unsigned_weights import OPERATORS, overflows, unsigned


@dataclass(frozen=True)
class Written:
    """The result of ``write_out``.

    Attributes:
        model: an expanded copy of the model; the model itself if nothing was to expand.
        counts: operator -> how many of its nodes were expanded or changed.
    """

    model: Model
    counts: dict[str, int]

    def __str__(self) -> str:
        """The changes as text: ``61 GroupNorm written out``; empty without changes."""
        return " and ".join(f"{count} {op} {_HOW.get(op, 'written out')}" for op, count in sorted(self.counts.items()))


Rewrite = Callable[[NodeFacts, Edit], str]
_ROUNDS = "MatMulNBits"
_LAYER = "DynamicQuantizeLSTM"
_HOW = {
    _ROUNDS: "without the accuracy_level by which the CPU rounds",
    _LAYER: "on dequantized weights, without the 8 bits to which the CPU rounds data",
    **dict.fromkeys(OPERATORS, "on uint8 weights, with which the CPU does not overflow"),
}


def _exact(facts: NodeFacts, edit: Edit) -> str:
    """Remove ``accuracy_level`` from a MatMulNBits, so that the CPU computes in the type of its data, as DirectML does.

    Returns an empty text; a reason if the node does so already.
    """
    if facts.attribute("accuracy_level", 0) <= 1:
        return "it computes in FP32"
    edit.drop("accuracy_level")
    return ""


def _rewrite_of(node: ir.Node, forms: Mapping[str, Rewrite]) -> Rewrite | None:
    """The function that expands or changes a node; ``None`` if the node stays."""
    if overflows(node):
        return unsigned
    if node.domain != DOMAIN:
        return None
    if node.op_type == _ROUNDS and "accuracy_level" in node.attributes:
        return _exact
    norms = node.op_type == "GroupQueryAttention" and any(node.inputs[14:16])
    return NORMS.rewrite if norms else forms.get(node.op_type)


def write_out(model: Model, *, all_of_them: bool = False) -> Written:
    """Expand fused operators in a copy of ``model``: those that the CPU provider lacks or computes differently.

    ``all_of_them``: also expand those that the CPU provider computes like DirectML. Nodes that dmlprep cannot expand
    stay.
    """
    if not any(node.domain == DOMAIN or node.op_type in OPERATORS for _, graph in graphs(model.ir) for node in graph):
        return Written(model, {})  # before the import of the forms: few models have any
    from dmlprep.passes.fusions.catalog import FORMS

    forms = {f.op_type: f.write_out for f in FORMS if all_of_them or not f.on_cpu}
    layers = frozenset(
        label(n) for _, graph in graphs(model.ir) for n in graph if (n.domain, n.op_type) == (DOMAIN, _LAYER)
    )
    if layers:
        from dmlprep.passes.opset.lowering import InlineFirst, lower

        plain = model.copy()
        with suppress(ModelRefused, InlineFirst):
            lower(plain, plain.opset, rewrite=layers)
            rest = write_out(plain, all_of_them=all_of_them)
            return Written(rest.model, {**rest.counts, _LAYER: len(layers)})
    if not any(_rewrite_of(node, forms) for _, graph in graphs(model.ir) for node in graph):
        return Written(model, {})
    expanded = model.copy()
    names, counts = Names(expanded.ir), Counter[str]()
    whole = build(expanded.ir, Knowledge.swept(expanded.ir))
    infer_contrib(expanded.ir, whole)
    for facts in whole.all_graphs():
        for node in facts.nodes:
            graph, rewrite = node.ir.graph, _rewrite_of(node.ir, forms)
            if rewrite is not None and isinstance(graph, ir.Graph) and not rewrite(node, Edit(graph, node.ir, names)):
                counts[node.op] += 1
    return Written(expanded, dict(counts))
