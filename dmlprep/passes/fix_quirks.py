"""The fix-quirks step replaces quirks, nodes on which DirectML fails or computes wrong results, by equal nodes."""

from __future__ import annotations

from collections import Counter

import msgspec
import onnx_ir as ir

from dmlprep.core.errors import UsageError
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import Hit, find_quirks, quirks
from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.building import build, infer_contrib
from dmlprep.directml.targets.facts import GraphFacts
from dmlprep.directml.targets.support import is_function
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.model import Frozen, Model
from dmlprep.graph.model.walk import nodes
from dmlprep.graph.rewriting.functions import inline_functions
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.base import Context, Options, Pass
from dmlprep.passes.catalog import suggest
from dmlprep.record.steps import Inlined

_MICROSOFT = "com.microsoft"

_MAX_ROUNDS = 12
"""The most rounds of rewrites. A rewrite may create a node with another quirk; no known node needs more than three.
"""


class FixQuirksOptions(Options, frozen=True, kw_only=True):
    """Options of the step ``fix-quirks``.

    Attributes:
        skip: ids of quirks whose nodes stay unchanged and are not reported (``cast-bool``; docs/passes/fix-quirks.md
            lists the ids).
    """

    skip: list[str] = msgspec.field(default_factory=list)


class FixQuirksPass(Pass[FixQuirksOptions]):
    """Find nodes that are quirks of the target, and replace them by nodes that DirectML computes right."""

    name = "fix-quirks"
    summary = "equal forms for operators that DirectML fails on or computes wrongly"
    options_type = FixQuirksOptions
    bound = "rounding"  # a folded product or an average over other windows adds in another order

    def run(self, model: Model, context: Context) -> bool:
        """Rewrite nodes in place until no quirk with a rewrite is left, and return whether the model changed.

        Functions that contain a quirk are inlined first. Quirks that cannot be rewritten are reported (DP641). The pass
        ends after 12 rounds of rewrites.

        Raises:
            UsageError: ``skip`` contains an unknown quirk.
            ModelRefused: DP014, the rewrites exceed the limits for the model.
        """
        known = list(dict.fromkeys(q.id for q in quirks()))
        for name in self.options.skip:
            if name not in known:
                raise UsageError(f"unknown quirk {name!r}", where="fix-quirks, skip", fix=suggest(name, known))
        inlined = _inline(model, context.target, self.options, context.before)
        fixed: Counter[tuple[str, str]] = Counter()
        refused: dict[tuple[str, str, str], tuple[Hit, str]] = {}
        current: list[Hit] = []
        for round_ in range(_MAX_ROUNDS):
            graph = _graph(model, context.target, None if round_ or inlined else context.before)
            if graph is None:
                break
            current = [h for h in find_quirks(graph, context.target) if h.quirk.id not in self.options.skip]
            hits = [h for h in current if h.quirk.rewrite is not None and _key(h) not in refused]
            if not hits:
                current += [h for h in _in_bodies(model, graph, context.target) if h.quirk.id not in self.options.skip]
                break
            context.progress(round_ / _MAX_ROUNDS, f"{len(hits)} nodes")
            for hit, why in _rewrite_each(model, hits):
                if why:
                    refused[_key(hit)] = (hit, why)
                else:
                    fixed[hit.quirk.id, hit.quirk.code] += 1
            if any(node.domain == _MICROSOFT for node in nodes(model.ir)):
                model.ir.opset_imports.setdefault(_MICROSOFT, 1)  # a rewrite may be the first to need it
        for (quirk, code), count in sorted(fixed.items()):
            changed = "1 node" if count == 1 else f"{count} nodes"
            context.report("DP640", f"{quirk} ({code}): {changed} rewritten", quirk=quirk, count=count)
        no_form = [
            (hit, f"{hit.quirk.outcome} on DirectML") for hit in current if hit.quirk.rewrite is None or hit.node.origin
        ]
        for hit, why in [*refused.values(), *no_form]:
            inside = f" in the body of {hit.node.origin}" if hit.node.origin else ""
            text = f"{hit.quirk.id} ({hit.quirk.code}){inside}, {hit.detail}: {why}"
            certain = hit.finding().severity == "error"
            context.report(
                "DP641",
                text,
                node=hit.node.label,
                quirk=hit.quirk.id,
                quirk_code=hit.quirk.code,
                certain=certain,
            )
        context.facts.rewritten = {quirk: count for (quirk, _), count in sorted(fixed.items())}
        if inlined:
            context.facts.inlined = Inlined(inlined, 0)
        return bool(fixed or inlined)


def _key(hit: Hit) -> tuple[str, str, str]:
    return hit.quirk.id, hit.node.graph, next((v.name for v in hit.node.outputs if v is not None), "")


def _inline(model: Model, target: Target, options: FixQuirksOptions, frozen: Frozen | None) -> int:
    """Inline the model-local functions that contain a node with a quirk, and return the number of these functions.

    Whether a node has a quirk can depend on the types and shapes of one call, so the calls are inlined, not changed.
    """
    if target.opset_only or not model.ir.functions:
        return 0
    hits = find_quirks(read_facts(model, frozen=frozen), target)
    inner = [h.node.ir for h in hits if h.node.origin and h.quirk.id not in options.skip]
    return inline_functions(model, {("" if n.domain == "ai.onnx" else n.domain, n.op_type) for n in inner})


def _graph(model: Model, target: Target, frozen: Frozen | None) -> GraphFacts | None:
    """Read the facts of the main graph; ``None`` for targets without DirectML."""
    if target.opset_only:
        return None
    graph = build(model.ir, Knowledge.swept(model.ir, frozen))
    infer_contrib(model.ir, graph)
    return graph


def _in_bodies(model: Model, graph: GraphFacts, target: Target) -> list[Hit]:
    """Return the quirks in the bodies of ONNX's own operators that ONNX Runtime inlines. They have no rewrite."""
    if not any(is_function(node) and target.support(node).inlined for node in graph.all_nodes()):
        return []
    return [hit for hit in find_quirks(read_facts(model, target.tables), target) if hit.node.origin]


def _rewrite_each(model: Model, hits: list[Hit]) -> list[tuple[Hit, str]]:
    """Rewrite each node once, in place, for its first quirk; its other quirks wait for the next round.

    Returns each quirk that was tried, with the reason why its node stays unchanged, or ``""`` if it was rewritten.
    """
    names = Names(model.ir)
    results: list[tuple[Hit, str]] = []
    first: dict[int, Hit] = {}
    for hit in hits:
        first.setdefault(id(hit.node), hit)
    for hit in first.values():
        graph = hit.node.ir.graph
        if not isinstance(graph, ir.Graph) or hit.quirk.rewrite is None:
            continue  # an earlier rewrite of this round removed it
        results.append((hit, hit.quirk.rewrite(hit.node, Edit(graph, hit.node.ir, names, model.budget))))
    return results
