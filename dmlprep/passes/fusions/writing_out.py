"""Write fused operators out again, in a copy of a model, where there is no kernel for them (GroupNorm on the CPU), or
where the FP16 emulation is to round what each node gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.building import build
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import graphs
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.fusions.form import DOMAIN, Form


@dataclass(frozen=True)
class Written:
    """A model in which fused operators are written out: a copy where there are any, and operator -> how many nodes."""

    model: Model
    counts: dict[str, int]

    def __str__(self) -> str:
        """What was done, for people: ``61 GroupNorm``; empty where nothing was."""
        return ", ".join(f"{count} {op}" for op, count in sorted(self.counts.items()))


def write_out(model: Model, *, all_of_them: bool = False) -> Written:
    """Write out, in a copy, the fused operators that the CPU provider has no kernel for; or ``all_of_them``."""
    if not any(node.domain == DOMAIN for _, graph in graphs(model.ir) for node in graph):
        return Written(model, {})  # before the forms are imported: few models have any
    from dmlprep.passes.fusions.catalog import FORMS

    forms = {f.op_type: f for f in FORMS if all_of_them or not f.on_cpu}
    if not any(_is_one(node, forms) for _, graph in graphs(model.ir) for node in graph):
        return Written(model, {})
    made = model.copy()
    names, counts = Names(made.ir), Counter[str]()
    # Types behind such an operator are those that the model declares: onnx knows no rule for it.
    for facts in build(made.ir, Knowledge.swept(made.ir)).all_graphs():
        for node in facts.nodes:
            graph = node.ir.graph
            if _is_one(node.ir, forms) and isinstance(graph, ir.Graph):
                form = forms[node.op]
                if not form.write_out(node, Edit(graph, node.ir, names)):
                    counts[node.op] += 1
    return Written(made, dict(counts))


def _is_one(node: ir.Node, forms: dict[str, Form]) -> bool:
    return node.domain == DOMAIN and node.op_type in forms
