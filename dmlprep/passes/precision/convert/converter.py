"""dmlprep's own FP16 converter: decide, rewrite, check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedFunctionsPass

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets import Target
from dmlprep.graph.model import Frozen, Model
from dmlprep.graph.model.checking import check
from dmlprep.graph.model.texts import cast_target
from dmlprep.graph.model.walk import label, nodes
from dmlprep.graph.rewriting.inlining import Inline
from dmlprep.passes.precision.convert.masks import lower
from dmlprep.passes.precision.convert.plan import KeepIo, Plan, make_plan
from dmlprep.passes.precision.convert.rescale import Rescale, rescale
from dmlprep.passes.precision.convert.rewrite import rewrite
from dmlprep.passes.precision.fp16 import FP16_MAX, Loss
from dmlprep.passes.precision.policy.rules import Level
from dmlprep.passes.precision.view import View
from dmlprep.record import Finding, finding
from dmlprep.record.steps import KeepReason

_TAG = "dmlprep.chosen."


@dataclass
class Converted:
    """The result of a conversion.

    Attributes:
        changed: whether the model was changed.
        kept_fp32: label of each floating-point node that stays in FP32, except Cast and Constant -> the reason.
        rules: name of a rule -> how many nodes it keeps in FP32.
        casts: number of Cast nodes between floating-point types in the result.
        findings: the changes to constants, and their losses (DP401, DP402, DP408).
        frozen: the frozen form of the converted model; ``None`` if it was not changed.
    """

    changed: bool
    kept_fp32: dict[str, KeepReason] = field(default_factory=dict)
    rules: dict[str, int] = field(default_factory=dict)
    casts: int = 0
    findings: list[Finding] = field(default_factory=list)
    frozen: Frozen | None = None


def convert(
    model: Model,
    target: Target | None,
    *,
    level: Level = "balanced",
    keep_io: KeepIo = True,
    keep: Mapping[int, str] | None = None,
    convert_anyway: Mapping[int, str] | None = None,
    half_weights: bool = False,
) -> Converted:
    """Convert ``model`` to FP16 in place. Model-local functions are inlined.

    Args:
        target: the target whose DirectML kernels count; ``None``: all operators are assumed to have FP16 kernels.
        level: the policy, which decides what else stays in FP32 (``policy.rules``).
        keep_io: true if all graph inputs and outputs keep their types, or the names of those that keep them.
        keep: ``id(node)`` -> why the node stays in FP32.
        convert_anyway: ``id(node)`` -> why the node is converted although the policy would keep it.
        half_weights: store a large weight in FP16 only, even if it is rounded, if FP16 nodes read it and the only FP32
            readers are products in ``keep``.

    Raises:
        ModelRefused: a function cannot be inlined, a constant is sparse, or the result is invalid (all DP403).
            ``model`` may be changed already.
    """
    keep, convert_anyway = dict(keep or {}), dict(convert_anyway or {})
    inlined = inline_calls(model, keep, convert_anyway)
    view = View.of(model.ir, target)
    _refuse_unknown(view)
    plan = make_plan(view, level=level, keep=keep, convert=convert_anyway, keep_io=keep_io)
    rescaled: list[Finding] = []
    while plan.constants.rescaled and (done := rescale(model.ir, plan.constants.rescaled)):
        rescaled += [_rescaled(one) for one in done]
        view = View.of(model.ir, target)
        plan = make_plan(view, level=level, keep=keep, convert=convert_anyway, keep_io=keep_io, known=plan.constants)
    plan.half_weights = half_weights
    names = {id(n): label(n) for n in plan.full}
    findings = rescaled + _findings(plan)
    lower(plan.constants.masks)
    changed = rewrite(plan) or bool(rescaled or plan.constants.masks) or inlined
    frozen = model.snapshot() if changed else None
    if changed and (fault := check(model.ir, frozen=frozen)):
        fix = "keep the named node in FP32, or leave the model in FP32"
        raise ModelRefused(f"the converted model is invalid: {fault}", code="DP403", fix=fix)
    kept_fp32 = {
        names[id(node)]: KeepReason(reason.rule, reason.text)
        for node, reason in plan.full.items()
        if node.graph is not None and node.op_type not in ("Cast", "Constant") and view.is_float(node)
    }
    return Converted(
        changed,
        kept_fp32,
        dict(Counter(one.rule for one in kept_fp32.values())),
        count_casts(model.ir),
        findings,
        frozen,
    )


def _refuse_unknown(view: View) -> None:
    sparse = (ir.AttributeType.SPARSE_TENSOR, ir.AttributeType.SPARSE_TENSORS)
    for node in view.order:
        if any(attribute.type in sparse for attribute in node.attributes.values()):
            what, fix = "a sparse constant has no FP16 form", "export it dense"
            raise ModelRefused(what, where=label(node), code="DP403", fix=fix)


def count_casts(model: ir.Model) -> int:
    """Return the number of Cast nodes between floating-point types."""
    floats = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
    casts = [n for n in nodes(model) if n.op_type == "Cast" and not n.domain and cast_target(n) in floats]
    return sum(v is not None and (v.dtype is None or v.dtype.is_floating_point()) for n in casts for v in n.inputs[:1])


def _rescaled(one: Rescale) -> Finding:
    taker = label(one.division.node) if one.division.node is not None else f"a new Mul after {label(one.node)}"
    if one.before.over:
        why = f"{one.before.over} of {one.before.size} values beyond {FP16_MAX:g} (largest {one.before.peak:g})"
    elif one.before.relative > one.after.relative:
        why = f"largest value {one.before.peak:g}, of which FP16 would lose {one.before.relative:.2g}"
    else:
        why = f"largest value {one.before.peak:g}: sums of its products might exceed the range of FP16"
    return finding(
        "DP408",
        f"{one.value.name!r} ({why}) is multiplied by 2^{one.exponent}, so that FP16 "
        f"loses only {one.after.relative:.2g}; "
        f"{taker} divides the result by 2^{one.result}",
        node=one.value.name or "",
        exponent=one.exponent,
        peak=one.before.peak,
        over=one.before.over,
        flushed=one.before.flushed,
        relative=one.before.relative,
        relative_after=one.after.relative,
        taken_out_by=taker,
    )


def _findings(plan: Plan) -> list[Finding]:
    constants = plan.constants
    findings: list[Finding] = []
    quiet: list[Loss] = []
    for value, loss in constants.losses.items():
        if value in constants.masks:
            findings.append(_lowered(value, loss, constants.masks[value]))
        elif value in constants.kept_for and value not in constants.bounds:
            findings.append(_kept_whole(value, loss, [label(n) for n in value.consumers() if n in plan.full]))
        elif loss.flushed and value not in constants.bounds:
            quiet.append(loss)
    return [*findings, _flushed(quiet)] if quiet else findings


def _lowered(value: ir.Value, loss: Loss, becomes: float) -> Finding:
    """Return the finding (DP401) for a mask whose entries become ``becomes`` in magnitude."""
    text = f"mask {value.name or ''!r} holds {loss.peak:g}; its entries become {becomes:g} in magnitude, "
    text += "still beyond any score"
    return _note("DP401", text, node=value.name or "", peak=loss.peak, becomes=becomes, over=loss.over)


def _note(code: str, text: str, *, node: str = "", **facts: Any) -> Finding:
    return finding(code, text, node=node, severity="note", remedy="", **facts)


def _kept_whole(value: ir.Value, loss: Loss, readers: list[str]) -> Finding:
    """Return the finding (DP401 or DP402) for a constant whose readers stay in FP32."""
    name = value.name or ""
    what = (
        f"{loss.over} of {loss.size} values of {name!r} exceed {FP16_MAX:g} (largest {loss.peak:g})"
        if loss.over
        else f"{name!r} would have a relative rounding error of {loss.relative:.2g} "
        f"({loss.flushed} of {loss.size} values become zero)"
    )
    return _note(
        "DP401" if loss.over else "DP402",
        f"{what}; kept in FP32: {', '.join(readers[:4])}{' ...' if len(readers) > 4 else ''}",
        node=name,
        peak=loss.peak,
        over=loss.over,
        flushed=loss.flushed,
        relative=loss.relative,
    )


def _flushed(quiet: list[Loss]) -> Finding:
    """Return one finding (DP402) for all constants that lose small values, and are converted anyway."""
    lost, size = sum(loss.flushed for loss in quiet), sum(loss.size for loss in quiet)
    worst = max(0.0, *(loss.relative for loss in quiet))
    text = f"{lost} of {size} values in {len(quiet)} constants round to zero; no constant has a "
    text += f"relative rounding error above {worst:.2g}"
    return _note("DP402", text, flushed=lost, size=size, relative=worst)


def inline_calls(model: Model, *choices: dict[int, str]) -> bool:
    """Inline every model-local function of ``model`` in place, and return whether the model changed.

    Args:
        choices: maps of ``id(node)`` -> why the node was chosen. They are updated in place: a node in a function is
            replaced by its copies in all calls, and a call by all nodes that replace it.

    Raises:
        ModelRefused: a function cannot be inlined (DP403).
    """
    if not model.ir.functions:
        return False
    # The model's budget does not count unused functions, but the pass would expand them anyway.
    unused = RemoveUnusedFunctionsPass()(model.ir)  # type: ignore[no-untyped-call]
    if not model.ir.functions:
        return bool(unused.modified)
    # onnx-ir copies metadata from a call, and from a function's node, to the inlined nodes.
    for node in nodes(model.ir):
        for index, chosen in enumerate(choices):
            if id(node) in chosen:
                node.metadata_props[f"{_TAG}{index}"] = chosen[id(node)]
    try:
        result = Inline()(model.ir)
    except Exception as error:  # onnx-ir's passes have no common error class
        text = f"a model-local function cannot be inlined: {error}"
        raise ModelRefused(text, code="DP403", fix="export the model without functions") from error
    model.ir = result.model
    for index, chosen in enumerate(choices):
        chosen.clear()
        for node in nodes(model.ir):
            why = node.metadata_props.pop(f"{_TAG}{index}", None)
            if why is not None:
                chosen[id(node)] = why
    return bool(result.modified or unused.modified)
