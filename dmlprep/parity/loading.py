"""Check that ONNX Runtime loads a prepared model, if no other check of the proof has run it.

onnx's checker accepts models that ONNX Runtime does not load. Some fail immediately, some when its optimizer replaces
an If by a branch and infers shapes again. The model does not run, and no weights are rearranged.
"""

from __future__ import annotations

import time
from dataclasses import replace

from dmlprep import runtime
from dmlprep.graph.analysis.segments import WHOLE_BYTES
from dmlprep.graph.model import Model
from dmlprep.parity.optimization_levels import at_some_level, lower_levels
from dmlprep.parity.trial import not_run
from dmlprep.record import Check, DeviceInfo, Verdict, finding
from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions
from dmlprep.runtime.ort_messages import lacks_a_kernel
from dmlprep.runtime.types import NO_SPINNING, Optimization

LOADS = Check("load", "cpu")

_CONFIG = {
    "session.disable_prepacking": "1",
    **NO_SPINNING,
    "optimization.constant_folding_max_output_size_in_bytes": str(1 << 20),
}
"""Settings of a session that only loads, and folds no large constants.

A constant that ONNX Runtime folds is as large as the file declares: a running sum of 2**27 numbers took 3 GB. Sizes and
conditions, which decide whether a file loads, are small. ONNX Runtime has the second option since 1.27, where 1 GiB a
node is the default; an older one folds all (pull request 28055).
"""


def loads(original: Model, result: Model, time_limit: float = 600.0, host: SessionHost | None = None) -> Verdict:
    """Load a prepared model on the CPU without running it, and return the verdict.

    Args:
        time_limit: limit in seconds for each load.
        host: the child process for the sessions; ``None``: each session starts its own.

    Returns:
        the verdict: ``passed`` if ONNX Runtime loads the result; ``failed`` if it loads the original, but not the
            result. ``not-run``, which decides nothing, if it loads neither (a custom operator, an opset that is too
            new), lacks a CPU kernel, or reaches a limit.
    """
    began = time.perf_counter()
    # Basic optimisation folds and inlines; further fusions cost memory and time in a large model.
    level: Optimization = "all" if result.statistics().nbytes <= WHOLE_BYTES else "basic"
    options = SessionOptions(optimization=level, time_limit=time_limit, config=_CONFIG)
    device, failure = _loaded(result, options, host)
    if failure is None:
        return Verdict(LOADS, "passed", device=device, seconds=round(time.perf_counter() - began, 3))
    why, limit = "", None
    if failure.kind not in ("load", "crash"):
        why, limit = f"not tried: {failure.message}", failure
    elif lacks_a_kernel(failure.message):
        why = f"the CPU has no kernel for a node: {failure.message}; DirectML might have one"
    elif _loaded(original, options, host)[1] is not None:
        why = f"ONNX Runtime loads neither the result nor the original: {failure.message}"
    if why:
        return not_run(LOADS, why, None, began, decides=False, failure=limit)
    reason = f"ONNX Runtime loads the original, and not the result: {failure.message}"
    return Verdict(
        check=LOADS,
        outcome="failed",
        reason=reason,
        seconds=round(time.perf_counter() - began, 3),
        findings=[finding("DP713", reason, severity="error", kind=failure.kind)],
    )


def _loaded(
    model: Model, options: SessionOptions, host: SessionHost | None
) -> tuple[DeviceInfo | None, SessionFailure | None]:
    path = model.path
    assert path is not None

    def once(asked: SessionOptions) -> DeviceInfo | None:
        with runtime.open_cpu(path, replace(asked, model_bytes=model.stored_bytes), host) as session:
            return session.device

    try:
        device, lowered = at_some_level(once, options, lower_levels(model))
        if device is not None and lowered is not None:
            device = device.also(f"at {lowered}")
        return device, None
    except SessionFailure as failure:
        return None, failure
