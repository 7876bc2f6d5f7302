"""The simplify step runs onnxsim on the model without its weights, and reverts the result if it does harm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import msgspec
import numpy as np
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.building import build
from dmlprep.graph.analysis.equivalence import compute_the_same
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.analysis.segments import run_segments
from dmlprep.graph.model import Model
from dmlprep.graph.model.checking import check
from dmlprep.graph.model.constants import held_tensor
from dmlprep.graph.model.random_ops import RANDOM
from dmlprep.graph.model.runner import Runner
from dmlprep.graph.model.walk import label, main_graphs, nodes
from dmlprep.graph.rewriting.builder import insert_behind, replace_value
from dmlprep.graph.rewriting.constant_chains import fold_chains
from dmlprep.graph.rewriting.names import Names
from dmlprep.graph.rewriting.unread import remove_dead
from dmlprep.graph.rewriting.weights import put_back, take_out
from dmlprep.metrics import NOISE_FACTOR, TOLERANCES, compare_outputs, describe, noise_of, nudged, output_groups
from dmlprep.passes.base import Context, Fact, Options, Pass
from dmlprep.portable.arrays import Array
from dmlprep.portable.bounds import MOST_FEEDS, MOST_KIB, MOST_SECONDS
from dmlprep.record import OutputMetrics
from dmlprep.runtime.tools import onnxsim

GROWTH = 1.05
"""Limit on growth: a result with more than this many times the nodes, or the size of tensors, is reverted."""

SHARE = 0.02
"""Size limit of a folded constant, as a share of the size of the model's tensors."""

SHARE_ON_CPU = 0.25
"""Limit on the growth of tensors by folded weights, whose results the CPU would compute in each run, and copy."""

_BOUND = TOLERANCES["fp32-cpu"]

_DRAWN_LIKE = frozenset({"RandomNormalLike", "RandomUniformLike"})

_SHAPE_FROM_VALUE = 9
"""The first opset that has ConstantOfShape, which ``silence`` needs."""

_MOST_GRAPHS = 500
"""Number of graphs above which onnxsim merges no equal nodes, and dmlprep removes unused ones instead of onnxsim.

Both take onnxsim 0.8.1 the cube of the number of graphs: 35 s for 3,000 If nodes. A model with a Loop is excepted.
"""

_SLACK_BYTES = 1024  # lets a model of a few bytes gain a folded constant


class SimplifyOptions(Options, frozen=True, kw_only=True):
    """Options of the step ``simplify``.

    Attributes:
        time_limit: time limit of onnxsim in seconds.
        constant_kib: size limit of a folded constant in KiB; 2 % of the size of the model's tensors is another limit. A
            chain of nodes may be folded into a larger constant if that replaces weights with more bytes, or if
            DirectML has no kernel for a node of the chain.
        feeds: number of feeds (sets of inputs) on which outputs are compared.
        drop_unread: remove initializers that no node of the original model reads; by default they stay.
    """

    time_limit: Annotated[float, msgspec.Meta(gt=0, le=MOST_SECONDS)] = 600.0
    constant_kib: Annotated[int, msgspec.Meta(ge=0, le=MOST_KIB)] = 1024
    feeds: Annotated[int, msgspec.Meta(ge=1, le=MOST_FEEDS)] = 1
    drop_unread: bool = False


class SimplifyPass(Pass[SimplifyOptions]):
    """Simplify the graph with onnxsim, which gets no weights; dmlprep folds chains of constants itself before."""

    name = "simplify"
    summary = "fold constants and remove redundant nodes with onnxsim; dmlprep reverts worse results"
    options_type = SimplifyOptions
    gives: frozenset[Fact] = frozenset({"simplified"})  # type: ignore[misc]
    bound = "rounding"

    def run(self, model: Model, context: Context) -> bool:
        """Simplify ``model`` in place, and return whether it changed.

        If onnxsim fails, or its result is over 5 % larger, invalid or computes something else, the result is dropped
        and the reason reported (DP301). Constants that the CPU would compute do not count as growth. Any other result
        with more nodes, or with as many nodes and no fewer bytes, is dropped without a report.

        Raises:
            InputError: a user's feed does not fit the model.
            CheckNotRun: the comparison has no feeds, or a run needs more memory or time than its limits allow.
        """
        changed = self._simplified(model, context)
        if silence(model.ir):
            changed, context.after = True, None
        return changed

    def _simplified(self, model: Model, context: Context) -> bool:
        before, work = model.statistics(), model.copy(context.before)
        limit = min(self.options.constant_kib * 1024, max(_SLACK_BYTES, int(before.nbytes * SHARE)))
        added = 0
        if context.runner is not None:
            slow = partial(_without_kernel, work.ir, context.target)
            slow_limit = int(before.nbytes * SHARE_ON_CPU)
            added = fold_chains(work, context.runner, limit, slow=slow, slow_limit=slow_limit)
        try:
            extracted = take_out(work.ir)
            # onnxsim unrolls Loops, and must then remove unused nodes itself.
            few = len(list(main_graphs(work.ir))) <= _MOST_GRAPHS or any(n.op_type == "Loop" for n in nodes(work.ir))
            proto = onnxsim.simplify(
                ir.to_proto(work.ir),
                time_limit=self.options.time_limit,
                constant_bytes=limit,
                merge_equal=few and not any(n.op_type in RANDOM for n in nodes(model.ir)),
                drop_dead=few,
            )
            result = Model(put_back(proto, extracted, model.ir), model.path, budget=work.budget)
            if not few:
                remove_dead(result.ir)
        except ModelRefused as error:
            return self._undone(context, error.what)
        after = result.statistics()
        context.facts.nodes = before.nodes, after.nodes
        context.facts.bytes = before.nbytes, after.nbytes
        if after.nodes > before.nodes * GROWTH or after.nbytes > before.nbytes * GROWTH + added + _SLACK_BYTES:
            sizes = f"{before.nodes} to {after.nodes} nodes, {before.nbytes} to {after.nbytes} bytes of tensors"
            return self._undone(context, f"the result is larger: {sizes}")
        if (after.nodes, after.nbytes) >= (before.nodes, before.nbytes):
            return False
        frozen = result.snapshot()
        with model.held(context.before), result.held(frozen):
            wrong = _unlike(model, result) or check(result.ir, frozen=frozen)
            wrong = wrong or self._differs(model, result, context)
        if wrong:
            return self._undone(context, wrong)
        model.become(result)
        context.after = frozen
        return True

    def _undone(self, context: Context, why: str) -> bool:
        context.report("DP301", f"simplify was undone: {why}", reason=why)
        return False

    def _differs(self, model: Model, result: Model, context: Context) -> str:
        """Compare the outputs of ``result`` and ``model`` on the CPU, and return a sentence if they differ.

        Also a sentence if only ``result`` does not run. Empty if they agree up to the model's own noise, or cannot be
        compared (no runner, random operators, ``model`` does not run); the facts of the step say which. No model runs
        if the graphs show that they are equal.
        """
        runner = context.runner
        if runner is None:
            context.facts.guard_on_values = "not run: this pipeline runs no models"
            return ""
        random = sorted({n.op_type for n in nodes(model.ir) if n.op_type in RANDOM})
        if random:
            context.facts.guard_on_values = f"not run: {', '.join(random)} gives other values in each run"
            return ""
        if compute_the_same(model, result):
            context.facts.guard_on_values = "not needed: the graphs differ only in constants and names"
            return ""
        try:
            feeds = runner.feeds(model, self.options.feeds)
            references = [run_segments(runner.run, model, feed) for feed in feeds]
        except ModelRefused as error:
            context.facts.guard_on_values = f"not run: the model itself does not run: {error.what}"
            return ""
        groups, worst, verdict = output_groups(model), 0.0, "passed"
        for feed, reference in zip(feeds, references, strict=True):
            try:
                now = run_segments(runner.run, result, feed)
            except ModelRefused as error:
                return f"the result does not run: {error.what}"
            for name in reference:
                if name not in now or now[name].dtype != reference[name].dtype:
                    return f"the outputs differ: output {name!r} is missing, or of another type"
            comparisons = compare_outputs(groups, reference, now, _BOUND)
            if not all(m.passed for m in comparisons):
                noise = _noise(model, feed, reference, runner)
                comparisons = compare_outputs(groups, reference, now, _BOUND, noise)
                wrong = [m for m in comparisons if not m.passed and not _is_noise(m, noise.get(m.output, 0.0))]
                if wrong:
                    return f"the outputs differ: {describe(wrong[0], _BOUND)}"
                verdict = f"within the model's own noise, {max(noise.values(), default=0.0):.3g},"
            worst = max([worst, *(m.max_rel for m in comparisons)])
        context.facts.guard_on_values = f"{verdict} on {len(feeds)} feed(s), largest difference {worst:.3g}"
        return ""


def _without_kernel(model: ir.Model, target: Target, known: Knowledge) -> set[ir.Node]:
    """Return the nodes of the main graph for which DirectML has no kernel; none if the target's kernels are unknown."""
    if target.opset_only:
        return set()
    return {node.ir for node in build(model, known).nodes if target.support(node).provider != "dml"}


def silence(model: ir.Model) -> bool:
    """Replace RandomNormalLike and RandomUniformLike by zeros, in place, if their results are only multiplied by 0.

    Returns whether a node was replaced.
    """
    drawn = [n for n in nodes(model) if n.op_type in _DRAWN_LIKE and n.domain in ("", "ai.onnx")]
    if not drawn or model.opset_imports.get("", 1) < _SHAPE_FROM_VALUE:
        return False
    changed, names = False, Names(model)
    for node in drawn:
        out, graph = node.outputs[0], node.graph
        if out.dtype is None or not out.dtype.is_floating_point() or graph is None or not _multiplied_by_zero(out):
            continue
        shape = ir.Node("", "Shape", [node.inputs[0]], name=names.node("silent_shape"))
        zero = ir.tensor(np.zeros(1, out.dtype.numpy()), out.dtype)
        zeros = ir.Node("", "ConstantOfShape", shape.outputs, {"value": ir.AttrTensor("value", zero)})
        zeros.name, shape.outputs[0].name = names.node("silence"), names.value("silent_shape")
        shape.outputs[0].type = ir.TensorType(ir.DataType.INT64)
        insert_behind(out, [shape, zeros])
        replace_value(out, zeros.outputs[0], names.value("drawn"))
        graph.remove(node, safe=True)
        changed = True
    return changed


def _multiplied_by_zero(value: ir.Value) -> bool:
    if value.is_graph_output() or not value.uses():
        return False
    for reader in value.consumers():
        if reader.op_type in ("Cast", "Identity", "Transpose", "Reshape") and _multiplied_by_zero(reader.outputs[0]):
            continue
        others = [held_tensor(v) for v in reader.inputs if v is not value]
        if reader.op_type != "Mul" or not others or not all(t is not None and not t.numpy().any() for t in others):
            return False
    return True


def _is_noise(metrics: OutputMetrics, noise: float) -> bool:
    """Return whether an error exceeds its bound, but not the model's own noise, so that it proves no harm.

    ``noise``: how far the original model differs from itself.
    """
    return metrics.non_finite == 0 and metrics.bound < metrics.max_rel <= NOISE_FACTOR * noise


def _noise(model: Model, feed: Mapping[str, Array], reference: Mapping[str, Array], runner: Runner) -> dict[str, float]:
    """The model's own noise on one feed, by output (``metrics.noise_of``); empty if the model does not run.

    The noise is how far the model differs from itself without graph optimization, or on slightly changed inputs.
    """
    try:
        plain = run_segments(partial(runner.run, optimized=False), model, feed)
        moved = run_segments(runner.run, model, nudged(feed))
    except ModelRefused:
        return {}
    return noise_of(output_groups(model), reference, [plain, moved])


def _unlike(model: Model, result: Model) -> str:
    """Compare what simplification must never change (inputs, outputs, opset, domains, random numbers).

    Returns a sentence if it differs; otherwise an empty text.
    """
    for kind in ("inputs", "outputs"):
        constants = [m.ir.graph.initializers if kind == "inputs" else () for m in (model, result)]
        names = [[v.name for v in getattr(m.ir.graph, kind)] for m in (model, result)]
        before, after = ([n for n in ends if n not in held] for ends, held in zip(names, constants, strict=True))
        if before != after:
            return f"the result has other {kind}"
    if model.ir.opset_imports.get("") != result.ir.opset_imports.get(""):
        return "the result has another opset"
    called = {(n.domain, n.op_type, n.overload) for n in nodes(result.ir)}
    known = {(n.domain, n.op_type, n.overload) for n in nodes(model.ir)}
    new = {c for c in called - known if c[0] not in ("", "ai.onnx")}
    if new:
        domain, op_type, _ = min(new)
        return f"the result calls {domain}::{op_type}, which the model does not"
    nameless = next((n for n in nodes(result.ir) if not n.op_type), None)
    if nameless is not None:
        return f"node {label(nameless)} has no operator"
    # Two nodes that draw random numbers must not be merged, even if they look equal.
    drawn = [sum(n.op_type in RANDOM for n in nodes(m.ir)) for m in (model, result)]
    return "nodes that draw random numbers were merged or removed" if drawn[0] != drawn[1] else ""
