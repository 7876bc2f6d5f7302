"""The fuse step replaces several nodes by one com.microsoft operator that DirectML has a kernel for."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.building import build
from dmlprep.directml.targets.facts import NodeFacts
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.model import Model
from dmlprep.graph.rewriting.builder import remove_unread
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.base import Context, Options, Pass
from dmlprep.passes.fusions import Form, Match
from dmlprep.passes.fusions.form import DOMAIN, Shared, write


class FuseOptions(Options, frozen=True, kw_only=True):
    """Options of the step ``fuse``. Each says whether to write one operator of com.microsoft.

    Attributes:
        group_norm: GroupNorm, with or without Swish.
        rotary: RotaryEmbedding.
        skip_norm: SkipSimplifiedLayerNormalization, for a sum and its RMS normalization.
        attention: MultiHeadAttention, for products of queries, keys and values with a Softmax between them.
        grouped_attention: GroupQueryAttention, for attention of a whole sequence under a causal mask.
    """

    group_norm: bool = True
    rotary: bool = True
    skip_norm: bool = False
    attention: bool = False
    grouped_attention: bool = False


class FusePass(Pass[FuseOptions]):
    """Find nodes that one operator of com.microsoft can replace, and replace them by that operator."""

    name = "fuse"
    summary = "one com.microsoft operator for several nodes, where DirectML has a kernel for the very form"
    options_type = FuseOptions
    bound = "rounding"  # sums in another order

    def run(self, model: Model, context: Context) -> bool:
        """Fuse nodes in place where the target's DirectML runs the operator, and return whether any were fused.

        Nodes that match, but cannot be fused, are reported with the reason (DP303).
        """
        from dmlprep.passes.fusions.catalog import FORMS  # here: every command imports every pass

        forms = [form for form in FORMS if getattr(self.options, form.option)]
        if context.target.opset_only or not forms:
            return False
        done: Counter[str] = Counter()
        unfused: dict[tuple[str, str], list[str]] = {}
        names = Names(model.ir)
        for facts in build(model.ir, Knowledge.swept(model.ir, context.before)).all_graphs():
            shared: Shared = {}
            for node in facts.nodes:
                for form in forms:
                    if node.key not in form.anchors:
                        continue
                    match = self._match(form, node, context)
                    if isinstance(match, str):
                        unfused.setdefault((form.op_type, match), []).append(node.path)
                    elif match is not None and _write(form, match, model, names, shared):
                        done[form.op_type] += 1
                        break
        for op, count in sorted(done.items()):
            nodes = "1 node replaces" if count == 1 else f"{count} nodes replace"
            context.report("DP302", f"{op}: {nodes} several nodes each", operator=op, count=count)
        for (op, why), places in sorted(unfused.items()):
            more = f" ({len(places)} times)" if len(places) > 1 else ""
            context.report(
                "DP303", f"not fused into {op}{more}: {why}", node=places[0], operator=op, count=len(places), reason=why
            )
        context.facts.fused = dict(sorted(done.items()))
        return bool(done)

    @staticmethod
    def _match(form: Form, node: NodeFacts, context: Context) -> Match | str | None:
        match = form.match(node)
        if not isinstance(match, Match):
            return match
        support = context.target.support(match.as_node(form.op_type))
        return match if support.provider == "dml" else f"DirectML does not run it: {support.reason}"


def _write(form: Form, match: Match, model: Model, names: Names, shared: Shared) -> bool:
    """Write the fused node of a match, in place, and remove the nodes that are no longer read.

    Returns false, without a change, if an earlier match has removed a node of this one.
    """
    graph = match.at.ir.graph
    givers = [giver.ir for giver, _ in match.gives]
    if not isinstance(graph, ir.Graph) or any(giver.graph is not graph for giver in givers):
        return False  # an earlier match removed a node of it
    write(form.op_type, match, Edit(graph, match.at.ir, names, model.budget), shared)
    model.ir.graph.opset_imports.setdefault(DOMAIN, 1)
    for giver in givers:
        remove_unread(giver)
    return True
