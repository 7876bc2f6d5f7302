"""Use the FP16 emulation to predict errors of a DirectML session, and to judge devices that round differently.

Shaders with native 16-bit types round FP32 to FP16 to nearest even. A device without them stores FP16 through typed
buffers. Its driver may round toward zero there, as NVIDIA's Vulkan driver and Mesa's CPU driver do, and the errors add
up. A model that is 0.01 off with one rounding can be 0.3 off with the other. The self-test measures the rounding. A
device that rounds toward zero is compared with the FP16 emulation in the same rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from dmlprep import runtime
from dmlprep.record import OutputMetrics, Verdict, finding
from dmlprep.runtime import SessionOptions

if TYPE_CHECKING:
    from dmlprep.passes.precision import Rounding

FACTOR = 2.0
"""Largest error with which a device that rounds toward zero passes, as a multiple of the emulation's prediction.

Measured on five models in both roundings: docs/figures.md.
"""


def device_rounding(session: SessionOptions | None = None) -> Rounding:
    """Return how the DirectML device of ``session`` rounds FP32 to FP16, by the self-test; unknown means nearest."""
    return "toward-zero" if runtime.dml_status(session=session).fp16.rounding == "toward-zero" else "nearest"


def apply_prediction(
    measured: Verdict, predicted: Verdict | None, rounding: Rounding, last_bits: float = 0.0
) -> Verdict:
    """Return the verdict of a DirectML session, with the predicted error added.

    The prediction is the largest of the emulation's error, the original's own noise, and ``last_bits``.

    If the device rounds toward zero, an output out of tolerance can still pass. It passes if the emulation in the same
    rounding predicted an error at least half as large, and all elements are finite. The verdict passes if all
    outputs do. A user's metric is not judged again.

    Args:
        measured: the verdict of the DirectML session.
        predicted: the verdict of the emulation, in the device's rounding. If it is ``None``, or if one of the verdicts
            has no outputs, ``measured`` is returned unchanged.
        rounding: how the device rounds FP32 to FP16.
        last_bits: relative error of the original when the last bits of its inputs change, if it is quantized;
            otherwise 0.
    """
    if predicted is None or not predicted.outputs or not measured.outputs:
        return measured
    expected = {output.output: output for output in predicted.outputs}
    foretold = {
        "the fp16 emulation": max(output.max_rel for output in predicted.outputs),
        "the original's own noise": max(output.noise or 0.0 for output in predicted.outputs),
        # Quantised models round on the way: a last bit becomes a whole step, which no emulation predicts better.
        "the original, with the last bits of its inputs changed,": last_bits,
    }
    by = max(foretold, key=lambda name: foretold[name])
    verdict = msgspec.structs.replace(measured, predicted=foretold[by], predicted_by=by)
    if rounding == "nearest" or measured.outcome != "failed" or measured.metric:
        return verdict
    outputs = [_judged(output, expected.get(output.output)) for output in measured.outputs]
    if not all(output.passed for output in outputs):
        return verdict
    worst = max(output.max_rel for output in outputs)
    text = (
        f"this device rounds FP16 toward zero and is {worst:.2g} off; the FP16 emulation with the same rounding "
        f"predicts {foretold['the fp16 emulation']:.2g}, and judged it"
    )
    return msgspec.structs.replace(
        verdict,
        outcome="passed",
        reason="",
        outputs=outputs,
        tolerance=f"fp16-dml, rounding toward zero: max|d| <= {FACTOR:g} x predicted",
        findings=[finding("DP708", text)],
    )


def _judged(measured: OutputMetrics, predicted: OutputMetrics | None) -> OutputMetrics:
    if measured.passed or predicted is None or measured.non_finite:
        return measured
    # Each side has the numbers of its own worst feed. Feeds are ordered by the error that decides.
    ours, emulated = (one.error or one.max_rel for one in (measured, predicted))
    if ours > FACTOR * emulated:
        return measured
    return replace(measured, passed=True, note="judged by the emulation with the same rounding")
