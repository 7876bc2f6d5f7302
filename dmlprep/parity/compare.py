"""Compare a candidate on a device with the original on the CPU, in child processes. Not run is never passed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx_ir as ir

from dmlprep.errors import CheckNotRun, InputError
from dmlprep.model import Model
from dmlprep.model.walk import nodes, tensors
from dmlprep.parity.feeds import Feed, fit_feeds
from dmlprep.parity.metrics import OutputComparison
from dmlprep.parity.reference import Reference, flatten
from dmlprep.parity.rows import row_groups
from dmlprep.parity.tolerances import Tolerance, choose_tolerance, proves
from dmlprep.record import DeviceInfo, Finding, OutputMetrics, Verdict, finding

if TYPE_CHECKING:
    from dmlprep.runtime import Session, SessionHost, SessionOptions, ValueInfo

__all__ = ["Device", "adapt_feed", "compare", "holds_fp16", "open_session", "quantizes", "usable_device"]

Array = np.ndarray[Any, Any]
Device = Literal["cpu", "dml"]
Progress = Callable[[float, str], None]


def holds_fp16(model: Model) -> bool:
    """Whether any tensor of a model, or any Cast in it, is FP16 or bfloat16. Reads no weights."""
    half = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    if any(t.dtype in half for t in tensors(model.ir)) or any(v.dtype in half for v in model.ir.graph.inputs):
        return True
    casts = (n.attributes.get("to") for n in nodes(model.ir) if n.op_type == "Cast")
    return any(a is not None and not a.is_ref() and ir.DataType(a.as_int()) in half for a in casts)


def quantizes(model: Model) -> bool:
    """Whether a model quantizes activations: a last bit can then become a step of 1/255."""
    kinds = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger")
    return any(n.op_type in kinds for n in nodes(model.ir))


def usable_device(device: Device) -> tuple[str, DeviceInfo | None]:
    """Why a device cannot be used here (empty where it can), and what it is."""
    if device == "cpu":
        return "", None
    from dmlprep.runtime import dml_status

    status = dml_status()
    if not status.available:
        return status.reason or "no DirectML session can be had here", status.device
    return "", status.device


def open_session(device: Device, path: Path, options: SessionOptions, host: SessionHost | None = None) -> Session:
    """A session on a device, from ``host`` or from a worker of its own.

    Raises:
        SessionFailure: the model cannot be loaded there.
    """
    from dmlprep.runtime import open_cpu, open_dml

    return open_cpu(path, options, host) if device == "cpu" else open_dml(path, options, host)


def adapt_feed(feed: Feed, inputs: Sequence[ValueInfo], where: str) -> Feed:
    """The feed in the element types that a session takes: FP16 in place of FP32, int32 in place of int64.

    Raises:
        InputError: an input is missing, or a value does not fit the narrower type.
    """
    adapted: Feed = {}
    for value in inputs:
        if value.name not in feed:
            raise InputError(
                f"the candidate has an input {value.name!r} that the reference does not have",
                where=where,
                code="DP705",
                fix="compare models with the same inputs",
            )
        array = feed[value.name]
        if value.dtype == array.dtype.name or array.dtype.kind in "OUS" or value.dtype == "bfloat16":
            adapted[value.name] = _to_bfloat16(array) if value.dtype == "bfloat16" else array
            continue
        try:
            kind = np.dtype(value.dtype)
        except TypeError:
            adapted[value.name] = array
            continue
        if kind.kind in "iu" and array.dtype.kind in "iu":
            limits = np.iinfo(kind)
            if array.size and (array.min() < limits.min or array.max() > limits.max):
                raise InputError(f"values of input {value.name!r} do not fit {kind.name}", where=where, code="DP705")
        with np.errstate(over="ignore"):
            adapted[value.name] = array.astype(kind)
    return adapted


def _to_bfloat16(array: Array) -> Array:
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16)


def compare(
    reference: Path | Reference,
    candidate: Path,
    feeds: Sequence[Mapping[str, Array]] | None = None,
    *,
    device: Device = "cpu",
    tolerance: str = "auto",
    time_limit: float = 600.0,
    session: SessionOptions | None = None,
    sizes: Mapping[str, int] | None = None,
    seeds: int = 2,
    progress: Progress = lambda share, text: None,
) -> Verdict:
    """Compare ``candidate`` on a device with ``reference`` on the CPU, feed by feed and output by output.

    Args:
        reference: the original, or a ``Reference`` whose outputs are computed already.
        feeds: the user's; seeded ones of the candidate's sizes are made where there are none. A ``Reference`` has its
            own.
        device: ``cpu`` or ``dml``.
        tolerance: a name of ``TOLERANCES``, ``rel:0.005``, or ``auto``.
        time_limit: seconds for one load or one run.
        session: how the candidate's session is opened (adapter, overrides of free dimensions).
        sizes: sizes for dimensions that stay free.
        seeds: how many feeds are made.

    Returns:
        ``passed`` only where every output of every feed was compared and is within the tolerance; ``failed`` also where
        the candidate does not load, crashes, hangs or is killed; ``not-run`` where the device, the reference or a feed
        is not to be had.

    Raises:
        InputError: a model cannot be read, or a feed of the user's does not fit.
        UsageError: there is no such tolerance.
    """
    if isinstance(reference, Reference):
        return _compare(reference, candidate, device, tolerance, time_limit, session, progress)
    try:
        made = Reference.of(
            reference, feeds, like=candidate, sizes=sizes, seeds=seeds, time_limit=time_limit, progress=progress
        )
    except CheckNotRun as error:
        return _not_run(device, str(error), None, time.perf_counter())
    with made:
        return _compare(made, candidate, device, tolerance, time_limit, session, progress)


def _compare(
    reference: Reference,
    candidate: Path,
    device: Device,
    tolerance: str,
    time_limit: float,
    session: SessionOptions | None,
    progress: Progress,
) -> Verdict:
    from dmlprep.runtime import SessionFailure, SessionOptions

    began = time.perf_counter()
    model = Model.open(candidate)
    fp16 = holds_fp16(model)
    chosen = choose_tolerance(tolerance, fp16=fp16, quantized=quantizes(model), device=device)
    fit_feeds(model, (adapt_shapes(feed, model) for feed in reference.feeds), str(candidate))
    reason, info = usable_device(device)
    if reason:
        return _not_run(device, reason, info, began, chosen)
    if not reference.feeds:
        return _not_run(device, "there are no feeds", None, began, chosen)
    try:
        count = reference.compute(progress)
    except SessionFailure as failure:
        return _not_run(
            device,
            f"the original does not run on the CPU, so there is nothing to compare with: {failure}",
            None,
            began,
            chosen,
        )
    if count == 0:
        return _not_run(device, "the model has no outputs", None, began, chosen)
    if not any(array.size for index in range(len(reference.feeds)) for array in reference.outputs(index).values()):
        return _not_run(device, "every output is empty: there is no element to compare", None, began, chosen)
    options = replace(session or SessionOptions(), time_limit=time_limit)
    comparisons = [OutputComparison(names, chosen, as_rows=rows) for names, rows in row_groups(reference.model)]
    try:
        with open_session(device, candidate, options) as opened:
            info = opened.device
            for index, feed in enumerate(reference.feeds):
                progress(index / len(reference.feeds), f"feed {index + 1} of {len(reference.feeds)} on {device}")
                answers = flatten(opened.run_any(adapt_feed(feed, opened.inputs, str(candidate))))
                missing = sorted(set(reference.outputs(index)) - set(answers))
                if missing:
                    return _failed(device, f"the candidate has no output {missing[0]!r}", info, began, chosen, index)
                _add(comparisons, reference.outputs(index), answers, chosen)
    except SessionFailure as failure:
        text = f"the candidate does not run: {failure}"
        return _failed(
            device, text, info, began, chosen, 0, [finding("DP704", text, severity="error", kind=failure.kind)]
        )
    except CheckNotRun as error:
        return _not_run(device, str(error), info, began, chosen)
    results = [m for c in comparisons for m in c.results()]
    left_out = set(reference.outputs(0)) - {m.output for m in results}
    if left_out:
        return _failed(device, f"output {min(left_out)!r} was not compared", info, began, chosen, 0)
    if not all(m.passed for m in results) and (drawn := reference.random_node()):
        reason = f"the original draws random numbers ({drawn}), and gives other outputs on the same feed each time"
        return _not_run(device, reason, info, began, chosen)
    return _judge(results, _described(info, fp16, reference), device, chosen, len(reference.feeds), began)


def adapt_shapes(feed: Feed, model: Model) -> Feed:
    """The feed with the element types of ``model``'s inputs, so that only names and shapes are left to check."""
    adapted = dict(feed)
    for value in model.ir.graph.inputs:
        name = value.name or ""
        if name in adapted and value.dtype is not None and value.dtype != ir.DataType.STRING:
            # A view of the right type and shape: nothing is copied.
            adapted[name] = np.broadcast_to(np.zeros((), value.dtype.numpy()), adapted[name].shape)
    return adapted


def _add(
    comparisons: list[OutputComparison], reference: dict[str, Array], answers: dict[str, Array], tolerance: Tolerance
) -> None:
    grouped = {name for c in comparisons for name in c.names}
    # Items of a sequence output are known only after a run.
    for name in reference:
        if name not in grouped:
            comparisons.append(OutputComparison((name,), tolerance))
    for comparison in comparisons:
        if all(name in reference for name in comparison.names):
            comparison.add(reference, answers)


def _described(info: DeviceInfo | None, fp16: bool, reference: Reference) -> DeviceInfo | None:
    if info is None:
        return None
    said = [proves(fp16, info)]
    if reference.device is not None and reference.device.name != "cpu":
        said.append(f"reference by {reference.device}")
    return DeviceInfo(info.name, [*info.details, *filter(None, said)])


def _judge(
    results: list[OutputMetrics],
    info: DeviceInfo | None,
    device: Device,
    tolerance: Tolerance,
    feeds: int,
    began: float,
) -> Verdict:
    if not results:
        return _not_run(device, "no output was compared", info, began, tolerance)
    findings: list[Finding] = []
    for metrics in results:
        if metrics.passed:
            continue
        facts: dict[str, Any] = {
            "max_abs": metrics.max_abs,
            "max_rel": metrics.max_rel,
            "cosine": metrics.cosine,
            "out_of_tolerance": metrics.out_of_tolerance,
            "non_finite": metrics.non_finite,
            "share_equal": metrics.share_equal,
        }
        code = "DP702" if metrics.non_finite else "DP701"
        findings.append(finding(code, describe(metrics, tolerance), node=metrics.output, **facts))
    seconds = round(time.perf_counter() - began, 3)
    reason = findings[0].message if findings else ""
    if len(findings) > 1:
        reason += f" (and {len(findings) - 1} more outputs)"
    return Verdict(
        check=f"parity on {device}",
        outcome="failed" if findings else "passed",
        reason=reason,
        device=info,
        tolerance=str(tolerance),
        feeds=feeds,
        seconds=seconds,
        outputs=results,
        findings=findings,
    )


def describe(metrics: OutputMetrics, tolerance: Tolerance) -> str:
    """One sentence on an output that is out of tolerance."""
    name = metrics.output
    if metrics.non_finite:
        return f"output {name!r} has {metrics.non_finite} elements that are not finite where the reference is"
    if metrics.note:
        return f"output {name!r}: {metrics.note}"
    if metrics.share_equal < 1:
        asked = f"{tolerance.share_equal:.0%} are asked for"
        return f"output {name!r}: {metrics.share_equal:.2%} of the elements are equal, {asked}"
    if metrics.max_rel > tolerance.max_rel:
        return f"output {name!r}: max|d|/max|ref| is {metrics.max_rel:.3g}, {tolerance.max_rel:g} is allowed"
    if metrics.cosine < tolerance.cosine:
        return f"output {name!r}: cosine is {metrics.cosine:.6f}, {tolerance.cosine:g} is asked for"
    return f"output {name!r}: {metrics.out_of_tolerance:.2%} of the elements are infinite or NaN on one side only"


def _not_run(
    device: Device, reason: str, info: DeviceInfo | None, began: float, tolerance: Tolerance | None = None
) -> Verdict:
    return Verdict(
        check=f"parity on {device}",
        outcome="not-run",
        reason=reason,
        device=info,
        tolerance=str(tolerance) if tolerance is not None else "",
        seconds=round(time.perf_counter() - began, 3),
        findings=[finding("DP703", f"parity on {device} did not run: {reason}")],
    )


def _failed(
    device: Device,
    reason: str,
    info: DeviceInfo | None,
    began: float,
    tolerance: Tolerance,
    feeds: int,
    findings: list[Finding] | None = None,
) -> Verdict:
    return Verdict(
        check=f"parity on {device}",
        outcome="failed",
        reason=reason,
        device=info,
        tolerance=str(tolerance),
        feeds=feeds,
        seconds=round(time.perf_counter() - began, 3),
        findings=findings if findings is not None else [finding("DP701", reason)],
    )
