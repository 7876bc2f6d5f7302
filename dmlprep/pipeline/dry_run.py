"""Predict what ``prepare`` would do to one model: run its steps on a copy of the graph, without writing or proving.

Steps that run the model skip that part: searches for nodes to keep (``fp16``, ``weights``) are left out, and
``simplify`` compares no values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.placement import Placement, place
from dmlprep.directml.placement.place import place_facts
from dmlprep.directml.placement.placement import PlacedNode
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts
from dmlprep.directml.vram import estimate
from dmlprep.graph.model import Frozen, Model
from dmlprep.graph.model.collector import paused_collector
from dmlprep.graph.model.walk import nodes
from dmlprep.graph.rewriting.unread import take_unread
from dmlprep.parity.feeds.sizes import batch_axis, batch_name, evaluate, graph_inputs, is_anonymous, resolve_shapes
from dmlprep.passes import AnyPass
from dmlprep.pipeline.placing import context_for
from dmlprep.pipeline.recipe import Plan, PlannedStep
from dmlprep.pipeline.transaction import Transactions
from dmlprep.record import StepRecord
from dmlprep.record.outlook import Fate, Half, Outlook

_CACHED = 4
"""Number of tokens in a cache, as the example size of its free dimension."""

_LARGER = (64, 224, 512)


def look_ahead(
    model: Model,
    plan: Plan,
    *,
    in_short: bool = False,
    before: Placement | None = None,
    frozen: Frozen | None = None,
) -> Outlook:
    """Run the steps of ``plan`` on a copy of ``model``, and return the prediction; ``model`` does not change.

    If a step refuses the model, ``refused`` has the reason. Otherwise, if sizes stay free and the recipe has a step
    ``pin``, the steps run again with an example size for each free dimension. That result is in ``example``.

    Args:
        in_short: True for one prediction only, without ``example``: that with example sizes or, if there are none or a
            step refuses them, that without.
        before: the placement of ``model`` on the plan's target, if it is known.
        frozen: the frozen form of ``model``, if it exists; it saves time.

    Raises:
        UsageError: the plan does not fit the model, or the target's kernels are not known.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    frozen = frozen or model.snapshot()
    with model.held(frozen):
        return _look_ahead(model, plan, in_short, before or place(model, plan.target, frozen))


def _look_ahead(model: Model, plan: Plan, in_short: bool, before: Placement) -> Outlook:
    pins = [s.pass_.options for s in plan.steps if s.pass_.name == "pin"]
    if in_short and pins and before.free_dimensions:
        whole = _with_sizes(model, plan, before, _example_sizes(model, before.free_dimensions, pins[0].sizes))
        if not whole.refused:
            return whole
    first = _run(model, plan, before)
    wanted = _example_sizes(model, first.free, first.sizes) if pins and not first.refused and not in_short else {}
    if not wanted:
        return first
    return msgspec.structs.replace(first, example=_with_sizes(model, plan, before, wanted))


def _with_sizes(model: Model, plan: Plan, before: Placement, sizes: Mapping[str, int]) -> Outlook:
    """Return the prediction with these sizes; if a step refuses them, with larger sizes, as of common images.

    If a step refuses those too, return the first prediction, which has the reason.
    """
    outlook = _run(model, _pinned(plan, sizes), before)
    for larger in _LARGER:
        if not outlook.refused:
            break
        other = _run(model, _pinned(plan, {k: larger if v > 1 else v for k, v in sizes.items()}), before)
        outlook = outlook if other.refused else other
    return outlook


@dataclass
class _Walk:
    """The state of a prediction: a copy of the model, and the results of the steps so far.

    Attributes:
        work: the copy, which the steps change.
        after: the placement of the copy, after the last step that changed it.
        cpu_nodes: lists of nodes on the CPU: before the first step, and after each step.
        steps: records of the steps.
        half: numbers of FP16 and FP32 nodes after the step ``fp16``; ``None`` without such a step.
        refused: the reason if a step refused the model; otherwise empty.
        pinned: the placement after the step ``pin``; ``None`` if it was not computed.
        facts: the facts from which ``after`` was computed; ``None`` if ``after`` is the original model's placement.
    """

    work: Model
    after: Placement
    cpu_nodes: list[list[PlacedNode]]
    steps: list[StepRecord] = field(default_factory=list)
    half: Half | None = None
    refused: str = ""
    pinned: Placement | None = None
    facts: GraphFacts | None = None

    def place(self, target: Target, frozen: Frozen | None) -> None:
        """Compute the placement of the copy in its present state, and store it (``after``, ``facts``)."""
        with paused_collector():
            self.facts = read_facts(self.work, target.tables, frozen)
            self.after = place_facts(self.facts, target, self.work.opset)


def _walk(model: Model, plan: Plan, before: Placement) -> _Walk:
    frozen = model.snapshot()
    walk = _Walk(model.copy(frozen), before, [_away(before)])
    changed = False
    unread = take_unread(walk.work.ir)
    steps = Transactions(walk.work, None if unread else frozen, is_forecast=True)
    for step in plan.steps:
        try:
            done = _ahead(steps, step, plan.target)
        except ModelRefused as error:
            walk.refused = str(error)
            return walk
        walk.steps.append(done)
        changed = changed or done.outcome == "changed"
        if changed and walk.cpu_nodes[0]:  # otherwise the step that brings a node to DirectML is not needed
            walk.place(plan.target, steps.frozen)
            changed = False
            if step.pass_.name == "pin":
                walk.pinned = walk.after
        walk.cpu_nodes.append(_away(walk.after))
        if done.facts.casts is not None:
            walk.half = _half(walk.work, done, step)
    if changed:
        walk.place(plan.target, steps.frozen)
    return walk


def step_ahead(model: Model, step: PlannedStep, target: Target, *, within: bool) -> Frozen:
    """Run one step on ``model`` in place, without the parts that run the model; return a snapshot of the result.

    Args:
        within: True if the model is already within the target's opset and IR version, where it must stay.

    Raises:
        ModelRefused: the step refuses the model, which is then unchanged. Other errors: as ``Transactions.run``.
    """
    steps = Transactions(model, within_target=within)
    _ahead(steps, step, target)
    after = steps.frozen
    assert after is not None
    return after


def _ahead(steps: Transactions, step: PlannedStep, target: Target) -> StepRecord:
    return steps.run(step.name, _without_runs(step), context_for(target), step.options)


def _run(model: Model, plan: Plan, before: Placement) -> Outlook:
    walk = _walk(model, plan, before)
    sizes = next((dict(s.pass_.options.sizes) for s in plan.steps if s.pass_.name == "pin"), {})
    chosen_by = next((s.facts.opset_chosen_by for s in walk.steps if s.facts.opset_chosen_by), "")
    return Outlook(
        recipe=plan.recipe.name,
        target=plan.target.name,
        target_reason=plan.target_reason,
        sizes=sizes,
        free=walk.after.free_dimensions,
        opset_before=model.opset,
        opset_after=walk.work.opset,
        opset_chosen_by=chosen_by,
        before=before.summary(),
        after=None if walk.refused else walk.after.summary(),
        steps=walk.steps,
        fates=_renamed(_fates(walk.cpu_nodes, walk.steps, walk.work), walk.cpu_nodes[-1]),
        staying=[_fate(n, reason=f"{n.code} {n.reason}") for n in _away(walk.after) if n.role == "compute"],
        half=walk.half,
        refused=walk.refused,
        values=plan.values,
        pinned=None if walk.pinned is None else walk.pinned.summary(),
        memory=None if walk.facts is None or walk.refused else estimate(walk.facts, walk.after, plan.target),
    )


def _without_runs(step: PlannedStep) -> AnyPass:
    """Return the pass of a step, with the options ``islands`` and ``search`` off, which would run the model."""
    options = step.pass_.options
    off = {name: "off" for name in ("islands", "search") if getattr(options, name, "off") != "off"}
    return type(step.pass_)(msgspec.structs.replace(options, **off)) if off else step.pass_


def _away(placement: Placement) -> list[PlacedNode]:
    """Return the nodes on the CPU, except constants and shape arithmetic, which ONNX Runtime keeps there (DP506)."""
    on_cpu = (n for n in placement.nodes if n.provider != "DmlExecutionProvider")
    return [n for n in on_cpu if n.role != "constant" and n.code != "DP506"]


def _fate(node: PlacedNode, *, step: str = "", reason: str = "") -> Fate:
    return Fate(node.name, f"{node.op}-{node.since_version}", step, reason, node.role)


def _fates(cpu_nodes: list[list[PlacedNode]], steps: list[StepRecord], work: Model) -> list[Fate]:
    """Return for each node on the CPU before the steps: the step that moves or removes it, or why it stays.

    Args:
        cpu_nodes: lists of nodes on the CPU: before the first step, and after each step.
        steps: records of the steps.
        work: the model after the steps.
    """
    with paused_collector():
        present = {n.name for n in nodes(work.ir)}
    names = [{name: n for n in after for name in (n.name, n.origin) if name} for after in cpu_nodes]

    def node_named(name: str, after: Mapping[str, PlacedNode]) -> PlacedNode | None:
        """Return the node of this name on the CPU, or a node that replaces it; ``None`` if neither is on the CPU."""
        if name in after or name in present:
            return after.get(name)
        return next((n for other, n in after.items() if other.startswith(f"{name}/")), None)

    fates = []
    for node in cpu_nodes[0]:
        name = node.origin or node.name
        last = max((i for i, after in enumerate(names) if node_named(name, after) is not None), default=0)
        if last >= len(steps):
            there = node_named(name, names[-1]) or node
            fates.append(_fate(node, reason=f"{there.code} {there.reason}"))
        else:
            fates.append(_fate(node, step=steps[last].step))
    return fates


def _renamed(fates: list[Fate], cpu_nodes: list[PlacedNode]) -> list[Fate]:
    """Return corrected fates: a node counts as staying on the CPU if a new CPU node of its operator appeared.

    A step may have renamed the node, so that it seemed to have left the CPU.

    Args:
        cpu_nodes: nodes on the CPU after the last step.
    """
    known = {f.node for f in fates}
    for node in cpu_nodes:
        staying = _fate(node, reason=f"{node.code} {node.reason}")
        at = next((i for i, f in enumerate(fates) if f.step and f.op == staying.op), None)
        if node.name not in known and at is not None:
            fates[at] = msgspec.structs.replace(staying, node=fates[at].node)
    return fates


def _half(model: Model, done: StepRecord, step: PlannedStep) -> Half:
    kinds = [{v.dtype for v in n.outputs} for n in nodes(model.ir) if n.op_type not in ("Cast", "CastLike", "Constant")]
    return Half(
        half=sum(ir.DataType.FLOAT16 in kind for kind in kinds),
        single=sum(ir.DataType.FLOAT in kind for kind in kinds),
        by_rule=done.facts.kept_by_rule,
        search=getattr(step.pass_.options, "islands", "off") == "auto",
    )


def _example_sizes(model: Model, free_dimensions: Mapping[str, list[str]], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return an example size for each free dimension, by name or by ``input:axis``.

    The size of a batch is 1; a cache has ``_CACHED`` tokens; the rest have the sizes of seeded feeds. Dimensions that
    follow from other dimensions are left out.

    Args:
        free_dimensions: places of free dimensions (``input[axis]``) by the name of the dimension.
        sizes: sizes that are set already.
    """
    inputs = graph_inputs(model)
    names = {dim for one in inputs for dim in one.dims or () if isinstance(dim, str) and dim.isidentifier()}
    known = dict.fromkeys(filter(None, map(batch_name, inputs)), 1) | dict(sizes)
    shapes = resolve_shapes(inputs, known)
    pairs = ((dim, size) for one in inputs for dim, size in zip(one.dims or (), shapes[one.name], strict=False))
    # Seeded feeds begin a text with an empty cache; a model for one size needs a cache with tokens.
    empty = {dim: _CACHED for dim, size in pairs if not size and isinstance(dim, str)}
    shapes = resolve_shapes(inputs, {**known, **empty})
    examples: dict[str, int] = {}
    free = {place for places in free_dimensions.values() for place in places}
    for one in inputs:
        for axis, dim in enumerate(one.dims or ()):
            if isinstance(dim, int) or f"{one.name}[{axis}]" not in free:
                continue
            size = shapes[one.name][axis]
            if dim is not None and dim in names:
                examples[dim] = size
            elif is_anonymous(dim) or evaluate(str(dim), dict.fromkeys(names, 1)) is None:
                examples[f"{one.name}:{axis}"] = 1 if axis == batch_axis(one) else size
    return examples


def _pinned(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    """Return the plan with more sizes in its steps ``pin``; these override the plan's own."""
    steps = []
    for step in plan.steps:
        if step.pass_.name == "pin":
            options = step.pass_.options
            wider = msgspec.structs.replace(options, sizes={**options.sizes, **sizes})
            step = PlannedStep(step.name, type(step.pass_)(wider), {**step.options, "sizes": dict(wider.sizes)})
        steps.append(step)
    return replace(plan, steps=tuple(steps))
