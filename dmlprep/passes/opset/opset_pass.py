"""Bring a model to the opset and the IR version that its target runs."""

from __future__ import annotations

from typing import Literal

from dmlprep.core.errors import ModelRefused, RecipeError
from dmlprep.core.text.sizes import count_text
from dmlprep.graph.analysis.schemas import NEWEST
from dmlprep.graph.model import Model, thaw
from dmlprep.graph.model.checking import check
from dmlprep.graph.model.collector import paused_collector
from dmlprep.graph.model.walk import nodes
from dmlprep.metrics import holds_rare_floats
from dmlprep.passes.base import Context, Options, Pass
from dmlprep.passes.opset.handling import OLDEST
from dmlprep.passes.opset.lowering import FunctionKey, Handled, InlineFirst, lower
from dmlprep.passes.opset.placing import best_placed
from dmlprep.passes.opset.raising import must_raise, raise_opset, weights_out_of_inputs

_SENTENCES = {
    "relabelled": "{nodes} relabelled: the same at opset {to}",
    "rewritten": "{nodes} rewritten with operators of opset {to}",
    "computed in a wider type": "{nodes} changed to a wider element type, because opset {to} lacks the narrow one",
    "expanded": "{nodes} replaced by ONNX's function body of the operator",
    "com.microsoft": "{nodes} replaced by com.microsoft operators",
    "inlined": "{nodes} (calls of model-local functions) replaced by the functions' bodies",
    "left alone": "{nodes} of other domains unchanged",
}


class OpsetOptions(Options, frozen=True):
    """Options of the opset step.

    Attributes:
        version: the opset to bring the model to, up or down. ``auto``, if the run can predict which nodes DirectML
            runs: the opset that the target loads and that leaves the fewest nodes on the CPU. Ties: the fewest
            operations on the CPU, then the opset nearest to the model's own. ``auto`` otherwise: a model above the
            highest opset of the target's DirectML is lowered to that opset, and a model below opset 7 is raised to it.
            Any other model keeps its opset.
        prefer_contrib: write operators of com.microsoft that DirectML has kernels for instead of newer ai.onnx
            operators, if their attributes allow it.
        single: compute bfloat16 and FP64 in FP32, if otherwise a node that does real work would run on the CPU, or if
            the run cannot predict this.
    """

    version: int | Literal["auto"] = "auto"
    prefer_contrib: bool = False
    single: bool = False


class OpsetPass(Pass[OpsetOptions]):
    """Lower or raise all nodes to one opset, or refuse the model; lower an IR version that the target does not load."""

    name = "opset"
    summary = "convert the model to an opset that the target runs"
    options_type = OpsetOptions
    gives = frozenset({"opset"})
    bound = "rounding"

    def run(self, model: Model, context: Context) -> bool:
        """Convert ``model`` in place while the garbage collector is paused, and return whether it changed.

        Raises:
            ModelRefused: DP102, a node cannot be lowered; DP104, a node cannot be raised; DP014, the model would exceed
                its limits.
            RecipeError: ``version`` is outside the range of the target and dmlprep.
        """
        with paused_collector():
            return self._run(model, context)

    def _run(self, model: Model, context: Context) -> bool:
        before = model.opset
        if single := self.options.single and to_single(model, context):
            context.before = model.snapshot()
        target = self._choose(model, before, context)
        context.facts.ir_before = model.ir.ir_version
        if self.options.version == "auto" and context.on_cpu is not None:
            best = best_placed(model, target, self._bring, context)
            changed, target = best.changed, best.opset
            if changed:
                model.become(best.model)
            context.findings += best.context.findings
            context.facts = best.context.facts
        else:
            changed = self._bring(model, target, context)
        facts = context.facts
        facts.opset_before, facts.opset_after, facts.ir_after = before, target, model.ir.ir_version
        return changed or single

    def _bring(self, model: Model, target: int, context: Context) -> bool:
        before, changed = model.opset, False
        if before < target and must_raise(model, target):
            context.facts.weights_not_inputs = raise_opset(model, target)
            context.report("DP101", f"opset {before} -> {target}, raised by onnx's converter", kind="raised")
            changed = True
            if self.options.prefer_contrib:
                self._lower(model, target, context)
        elif (
            before != target
            or self.options.prefer_contrib
            or any(int(f.opset_imports.get("", target)) != target for f in model.ir.functions.values())
        ):
            changed = self._lower(model, target, context)
        if model.ir.ir_version > context.target.max_ir:
            newest = context.target.max_ir
            text = f"IR version {model.ir.ir_version} -> {newest}, the newest that {context.target.name} loads"
            context.report("DP103", text)
            model.ir.ir_version = newest
            changed = True
        return changed

    def _choose(self, model: Model, before: int, context: Context) -> int:
        if before > NEWEST:
            # The installed onnx does not know the meaning of any operator there, not even of those with a known name.
            text = f"the model is of opset {before}, but the installed onnx supports at most {NEWEST}"
            fix = "install a newer onnx, or export the model at an opset that exists"
            raise ModelRefused(text, code="DP102", fix=fix)
        wanted = self.options.version
        context.facts.opset_chosen_by = "target"
        if wanted == "auto" and context.choose_opset is not None:
            context.facts.opset_chosen_by = "placement"
            # nodes are never lowered below OLDEST
            return max(context.choose_opset(model, context.before), min(before, OLDEST))
        if wanted == "auto":
            return before if 7 <= before <= context.target.dml_opset else context.target.dml_opset
        context.facts.opset_chosen_by = "option"
        highest = min(context.target.max_opset, NEWEST)
        if not OLDEST <= wanted <= highest and wanted != before:
            text = f"opset {wanted} is outside the range of {context.target.name} and dmlprep"
            raise RecipeError(text, where="field 'version'", code="DP901", fix=f"choose {OLDEST} to {highest}")
        return wanted

    def _lower(self, model: Model, target: int, context: Context) -> bool:
        before = model.opset
        snapshot = model.snapshot()
        inline: set[FunctionKey] = set()
        handled: Handled | None = None
        while handled is None:
            work = Model(thaw(snapshot), model.path, budget=model.budget.fork())
            if before != target:
                context.facts.weights_not_inputs = weights_out_of_inputs(work)
            try:
                handled = lower(work, target, prefer_contrib=self.options.prefer_contrib, inline=frozenset(inline))
            except InlineFirst as first:
                inline |= first.functions
        _report(handled, before, target, context)
        if before == target and work.snapshot().same_as(snapshot):
            return False
        wrong = check(work.ir)
        if wrong:
            text = f"the model converted from opset {before} to {target} is not valid: {wrong}"
            raise ModelRefused(text, code="DP102", fix="choose a newer target, and report the model's structure")
        model.become(work)
        return True


def _report(handled: Handled, before: int, target: int, context: Context) -> None:
    for kind, operators in sorted(handled.items()):
        nodes = context.facts.nodes_changed[kind] = operators.total()
        if kind not in _SENTENCES:
            continue
        named = ", ".join(f"{op} {n}" for op, n in operators.most_common(12))
        more = f" and {len(operators) - 12} more" if len(operators) > 12 else ""
        sentence = _SENTENCES[kind].format(nodes=count_text(nodes, "node"), to=target)
        text = f"opset {before} -> {target}: {sentence} ({named}{more})"
        context.report("DP101", text, kind=kind, nodes=nodes, operators=sorted(operators))


def to_single(model: Model, context: Context) -> bool:
    """Compute bfloat16 and FP64 in FP32, in place, and return whether the model changed.

    DirectML has no kernel for bfloat16, and few for FP64. Nothing changes if the model has neither type, or if the run
    predicts that no node runs on the CPU. Inputs and outputs of the model keep their types. A change is reported as
    DP105.

    Raises:
        ModelRefused: the result would be invalid (DP403).
    """
    if not holds_rare_floats(model) or (context.on_cpu is not None and not context.on_cpu(model, context.before)):
        return False
    from dmlprep.passes.precision.convert.converter import convert

    keep = dict.fromkeys(map(id, nodes(model.ir)), "computes in FP32")
    if not convert(model, context.target, level="fast", keep=keep).changed:
        return False
    context.report("DP105", "bfloat16 and FP64 are computed in FP32, because DirectML has few kernels for them or none")
    return True
