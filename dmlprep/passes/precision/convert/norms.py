"""Write normalizations that ONNX Runtime would fuse with two types as one node, so that the converted model loads."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.norm_types import two_types, write_norm
from dmlprep.directml.targets.building import build
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.graph.rewriting.names import Names


def write_norms(model: Model) -> bool:
    """Write such normalizations as LayerNormalization in FP32, in place, and return whether the model changed."""
    if not any(node.op_type == "Sqrt" for node in nodes(model.ir)):
        return False
    names, changed = Names(model.ir), False
    for facts in build(model.ir, Knowledge.swept(model.ir)).all_nodes():
        graph = facts.ir.graph
        if facts.key == "Div" and isinstance(graph, ir.Graph) and two_types(facts):
            changed |= not write_norm(facts, Edit(graph, facts.ir, names, model.budget))
    return changed
