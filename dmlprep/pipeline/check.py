"""Check a model file: its placement and quirks, the effect of ``prepare``, and more checks on request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
import onnx_ir as ir

from dmlprep.core.errors import DmlprepError, ToolFailed
from dmlprep.directml.placement.explain import explain_node as explain
from dmlprep.directml.placement.placement import PlacedNode
from dmlprep.directml.placement.report import Examined, examine_for
from dmlprep.directml.targets import Target
from dmlprep.directml.vram import estimate, not_enough, over_budget
from dmlprep.graph.model import Model
from dmlprep.graph.model.collector import paused_collector
from dmlprep.graph.model.input_watch import Unchanged
from dmlprep.graph.model.walk import graphs, nodes
from dmlprep.pipeline.opportunities import RECIPE, of_check
from dmlprep.pipeline.placing import Placed
from dmlprep.record import CODES, Finding, RunError, RunRecord, finding
from dmlprep.record.outlook import Outlook
from dmlprep.runtime import SessionOptions


def check_model(
    path: Path,
    targets: Sequence[Target],
    *,
    fail_on_cpu: bool = False,
    verify: bool = False,
    session: SessionOptions | None = None,
    vram: int | None = None,
) -> list[Examined]:
    """Check a model file for each target (DirectML release), and return one result for each, in the same order.

    If the kernels of the last target are known, its result also has the memory that a session needs (``facts.memory``)
    and ``facts.opportunities``. If a node is on the CPU or a size is free, it has the predicted effect of ``prepare``
    (``facts.prepare``, or why there is none: ``facts.prepare_fails``). The options apply to the last target only.

    Args:
        fail_on_cpu: True to set exit code 1 if a compute node would run on the CPU; ``error`` names the first. Nodes
            that only compute shapes may run there.
        verify: True to compare the placement with a real DirectML session too. The record gets its verdict, and exit
            code 1 if the verdict is not ``passed``.
        session: options of that session.
        vram: memory of the device in bytes. If a session needs more, a finding reports it and the exit code is 1; if
            the need is unknown, the exit code is 3.

    Raises:
        InputError: the model cannot be read, or was changed while it was verified.
        UsageError: an option needs kernels, and the target's kernels are not known.
        CheckNotRun: ``verify`` is set, and DirectML is not available or the memory is too small.
        ModelRefused: the model has content that dmlprep cannot preserve, or would grow beyond its limits.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    files = Unchanged(contents=False)
    try:
        model = files.take_model(path)
        examined = examine_for(model, targets, model.opened)
        newest = examined[-1]
        _foretell(model, newest)
        _note_half(model, newest)
        _weigh(newest, vram)
        _offer(model, newest)
        if verify:
            from dmlprep.parity.feeds.graph_feeds import make_feeds
            from dmlprep.runtime.verify_placement import verify_placement

            newest.known_placement("--verify")
            verdict = verify_placement(model, newest.target, session, feed=lambda: make_feeds(model, count=1)[0])
            files.check()
            newest.record.verdicts.append(verdict)
            if verdict.outcome != "passed":
                newest.record.exit_code = 1
    except ToolFailed as error:
        error.where = f"{path}: {error.where}" if error.where else str(path)
        raise
    if fail_on_cpu:
        _fail_on_cpu(newest)
    return examined


def explain_node(path: Path, name: str, target: Target) -> list[str]:
    """Return lines of text that explain the placement of a node, with the advice of ``check_model``.

    Raises:
        InputError: the model cannot be read.
        UsageError: there is no such node, or the target's kernels are not known.
        ModelRefused: as ``check_model``.
        ToolFailed: as ``check_model``.
    """
    model = Model.open(path)

    @cache
    def predicted() -> RunRecord:
        examined = examine_for(model, [target], model.opened)[0]
        _foretell(model, examined)
        return examined.record

    def advice(node: PlacedNode) -> str:
        record = predicted()
        one = next((f for f in record.findings if _group(f) == _group_of(node)), None)
        if one is None or record.facts.prepare is None or one.code == "DP506":
            return one.remedy if one is not None else CODES[node.code].remedy
        return _remedy(one, [node.name], record.facts.prepare)

    return explain(model, name, target, advice)


def _group(one: Finding) -> tuple[object, ...]:
    return one.facts.get("op"), one.facts.get("since_version"), one.code, one.facts.get("role") == "compute"


def _group_of(node: PlacedNode) -> tuple[object, ...]:
    """Return the group of similar nodes, to which the finding with the same ``_group`` belongs."""
    return node.op, node.since_version, node.code, node.role == "compute"


def _fail_on_cpu(examined: Examined) -> None:
    placement, record = examined.known_placement("--fail-on-cpu"), examined.record
    # DP508: an operator that ONNX Runtime's optimizer creates, and that DirectML has no kernel for.
    away = [*placement.compute_on_cpu, *(f.node for f in record.findings if f.code == "DP508")]
    if away:
        nodes = "1 compute node" if len(away) == 1 else f"{len(away)} compute nodes"
        record.exit_code, record.error = 1, RunError(f"{nodes} would run on the CPU, first {away[0]}")


def _weigh(examined: Examined, vram: int | None) -> None:
    """Add to the record the device memory that a session needs; with ``vram`` (bytes), also whether it suffices.

    A need that exceeds ``vram``, or is unknown, adds a finding and sets the exit code to 1 or 3.

    Raises:
        UsageError: ``vram`` is set, and the placement is not known.
    """
    record = examined.record
    if vram is not None:
        examined.known_placement("--vram")
    if examined.placement is None or examined.facts is None:
        return
    with paused_collector():
        memory = estimate(examined.facts, examined.placement, examined.target, vram)
    record.facts.memory = memory
    if vram is not None and (wrong := over_budget(memory, vram)) is not None:
        record.findings.append(wrong)
        record.exit_code = record.exit_code or (1 if memory.known else 3)
        record.error = record.error or RunError(not_enough(memory, vram))


def _has_half(model: Model) -> bool:
    """Return True if the model can contain FP16 values: in an input, a constant, or an attribute that names FP16."""
    for _, graph in graphs(model.ir):
        held = graph.initializers.values() if isinstance(graph, ir.Graph) else ()
        if any(value.dtype == ir.DataType.FLOAT16 for value in (*graph.inputs, *held)):
            return True
    for attribute in (a for node in nodes(model.ir) for a in node.attributes.values()):
        is_tensor = attribute.type == ir.AttributeType.TENSOR
        if (
            attribute.value is not None
            and (attribute.value.dtype if is_tensor else attribute.value) == ir.DataType.FLOAT16
        ):
            return True
    return False


def _note_half(model: Model, examined: Examined) -> None:
    """Add the finding DP410 if more than half of the floating-point nodes compute in FP16 already."""
    if not _has_half(model):
        return
    from dmlprep.passes.precision.types import computing_type, solve_types
    from dmlprep.passes.precision.view import UNTYPED

    types = solve_types(model.ir)
    computing = [n for n in nodes(model.ir) if n.op_type not in UNTYPED | {"Constant"}]
    kinds = [computing_type(n, types, model.ir.opset_imports) for n in computing]
    half, floats = kinds.count(ir.DataType.FLOAT16), sum(kind is not None for kind in kinds)
    if 2 * half > floats:
        text = f"the model is FP16 already: {half} of {floats} floating-point nodes compute in FP16"
        examined.record.findings.append(finding("DP410", text))


def _offer(model: Model, examined: Examined) -> None:
    """Add the opportunities to the record; a model that is not valid, or whose placement is not known, has none."""
    record = examined.record
    if examined.placement is None or examined.facts is None or any(f.code == "DP003" for f in record.findings):
        return
    placed = Placed(examined.facts, examined.placement, examined.target, [])
    record.facts.opportunities = of_check(model, placed, record)


def _foretell(model: Model, examined: Examined) -> None:
    """Predict the effect of ``prepare``, and add it to the record and to the remedies of its findings.

    Nothing changes if all nodes are on DirectML and no size is free, if the placement is not known, or the model is not
    valid. If the prediction fails, the record says why.
    """
    placement, record = examined.placement, examined.record
    if placement is None or any(f.code == "DP003" for f in record.findings):
        return
    away = [n for n in placement.nodes if n.provider != "DmlExecutionProvider"]
    if not away and not placement.free_dimensions:
        return
    # Not at the top: a model that needs no prediction is checked without importing the passes.
    from dmlprep.pipeline.dry_run import look_ahead
    from dmlprep.pipeline.recipe import load_recipe, make_plan

    recipe = msgspec.structs.replace(load_recipe(RECIPE), target=examined.target.name)
    try:
        outlook = look_ahead(model, make_plan(recipe), in_short=True, before=placement, frozen=model.opened)
    except DmlprepError as error:
        record.facts.prepare_fails = str(error)
        return
    record.facts.prepare = outlook
    if not outlook.refused:
        record.facts.best_opset = outlook.opset_after
    nodes: dict[tuple[object, ...], list[str]] = {}
    for node in away:
        nodes.setdefault(_group_of(node), []).append(node.name)
    for at, one in enumerate(record.findings):
        if _group(one) in nodes and one.code != "DP506":
            record.findings[at] = msgspec.structs.replace(one, remedy=_remedy(one, nodes[_group(one)], outlook))


def _remedy(one: Finding, names: list[str], outlook: Outlook) -> str:
    """Return the remedy of a finding about nodes on the CPU: which command moves them to DirectML, if any.

    Args:
        one: the finding about a group of nodes.
        names: the names of these nodes.
        outlook: the prediction of ``prepare``.
    """
    if outlook.refused:
        return f"dmlprep prepare refuses this model: {outlook.refused}"
    steps = [f.step for f in outlook.fates if f.step and f.node in names]
    prepare = "dmlprep prepare with fixed sizes" if outlook.sizes else "dmlprep prepare"
    if len(steps) >= len(names):
        moved = outlook.opset_after != outlook.opset_before
        words = (f"opset {outlook.opset_after}" if s == "opset" and moved else f"step {s}" for s in sorted(set(steps)))
        by = ", ".join(words)
        return f"{prepare} brings {_them(names)} to DirectML ({by})"
    general = CODES[one.code].remedy
    if steps:
        return f"{prepare} brings {len(steps)} of {len(names)} to DirectML, but not the rest; {general}"
    return f"{prepare} does not bring {_them(names)} to DirectML: {general}"


def _them(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"
