"""Named tolerances, each with its reason.

The numbers come from measurements of max|d| / max|reference| for each output, against the FP32 original on the CPU
provider of ONNX Runtime 1.24.4 (2026-11):

- FP32 on DirectML 1.15.4 (Linux, lavapipe): ResNet-18 4.5e-7, MobileNetV2 8.9e-7, a transformer 5.7e-7, a UNet 3.6e-7,
  ResNet-50 8.6e-7. Over ``fixtures/models``: 7.3e-7 at most. FP32 on the CPU, without and with all graph optimisation:
  0 to 9.0e-7 over ``fixtures/models``.
- FP16 files on the CPU provider, which computes in FP32: minilm 7e-4, whisper encoder 7e-4, superres 5e-4, mobilenetv2
  0.017 and resnet50 0.018 (random weights, no averaging over training).
- FP16 files on DirectML with rounding to nearest even: minilm 0.0011, whisper encoder 0.0015, superres 0.0010,
  mobilenetv2 0.0125, resnet50 0.022.
- Steep outputs, FP16 emulation on photographs and lines of text (``tests/benchmarks/trained.py``). The map of a text
  detector overlaps by at least 0.9977 and its masks by at least 0.9979. 3.3 % of its active elements are out of bounds;
  one differs by 0.17 from all around it. The rows of a text reader overlap by 0.994, and 0.18 of the worst row moves.
  In a front end that FP16 breaks (log of a power spectrum), the map overlaps by 0.94.
- QDQ models: a value that crosses a rounding boundary moves an activation by one step, 1/255 of its range. That is
  arithmetic; the one measurement (``fixtures/models/quantized_cnn.onnx``, fused integer kernels compared with node by
  node) shows 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypedDict

from dmlprep.core.errors import UsageError
from dmlprep.portable.measure import Tolerance
from dmlprep.record import DeviceInfo


class _Steep(TypedDict, total=False):
    overlap: float
    outside: float
    stray: float


_FINE: _Steep = {"overlap": 0.9999, "outside": 0.001, "stray": 0.01}
_STEEP: _Steep = {"overlap": 0.99, "outside": 0.1, "stray": 0.25}
_WIDE: _Steep = {"overlap": 0.985, "outside": 0.15, "stray": 0.3}
_LOOSE: _Steep = {"overlap": 0.95, "outside": 0.2, "stray": 0.5}

_ROWS: tuple[tuple[str, tuple[float, float, float, float], _Steep, str], ...] = (
    ("exact", (0.0, 0.0, 1.0, 1.0), {}, "steps that only move or rename do not change any bit"),
    ("fp32-cpu", (1e-5, 0.999999, 1.0, 0.99), _FINE,
     "FP32 sums in another order move by 9e-7 at most; ten times that"),
    ("fp32-dml", (1e-5, 0.999999, 1.0, 0.99), _FINE,
     "FP32 on DirectML is 9e-7 off at most; ten times that, for other GPUs"),
    ("fp16-cpu", (0.02, 0.999, 0.98, 0.9), _STEEP,
     "weights rounded to FP16 move random-weight resnet50 by 0.018, minilm by 7e-4"),
    ("fp16-dml", (0.03, 0.999, 0.98, 0.9), _WIDE,
     "FP16 on DirectML moves random-weight resnet50 by 0.022, minilm by 0.0011"),
    ("fp16-emulation", (0.02, 0.999, 0.98, 0.9), _STEEP,
     "FP16 moves minilm by 0.001, mobilenetv2 by 0.010; random-weight resnet50 on noise, 0.021, is out"),
    ("quantized", (0.03, 0.995, 0.95, 0.9), _WIDE,
     "one step of 8-bit activations is 0.004 of their range, and steps add up"),
    ("few-bits", (0.5, 0.95, 0.9, 0.8), _LOOSE,
     "weights of 4 bits in blocks of 32 move the trained minilm by 0.25; shows that outputs are similar, not equal"),
    ("loose", (0.1, 0.99, 0.9, 0.8), _LOOSE,
     "for models known to be sensitive; shows that outputs are similar, not equal"),
)  # fmt: skip
"""Rows of the table of tolerances: name, bounds (max_rel, cosine, share_equal, rows), bounds for steep outputs, and the
reason."""

TOLERANCES = {name: Tolerance(name, *bounds, reason, **steep) for name, bounds, steep, reason in _ROWS}
"""Map from a name to its tolerance; ``auto`` is not included (see ``choose_tolerance``)."""


def find_tolerance(name: str) -> Tolerance:
    """Return the tolerance of a name, which is not ``auto``.

    The name ``rel:0.005`` gives a tolerance with this bound on max|difference| / max|reference|. Further bounds may
    follow a name: ``fp16-cpu,overlap=0.995,threshold=0.3/0.6``.

    Raises:
        UsageError: there is no such tolerance or bound, or a number is not between 0 and 1.
    """
    base, *bounds = name.split(",")
    if base.startswith("rel:"):
        try:
            bound = float(base[4:])
        except ValueError:
            bound = -1.0
        if not 0 <= bound < 1:
            raise UsageError(f"{base!r} is not a tolerance", fix="write rel:0.005, between 0 and 1")
        tolerance = Tolerance(base, bound, 0.0, 1.0, 0.99, "set by the user")
    elif base in TOLERANCES:
        tolerance = TOLERANCES[base]
    else:
        raise UsageError(f"unknown tolerance {base!r}", fix=f"known: auto, {', '.join(TOLERANCES)}, or rel:0.005")
    return _with_bounds(tolerance, name, bounds)


_BOUNDS = {"overlap": "overlap", "outside": "outside", "stray": "stray", "threshold": "thresholds",
           "cosine": "cosine", "equal": "share_equal", "rows": "rows"}  # fmt: skip
"""Map from the bounds that users may write after a tolerance's name to fields of ``Tolerance``."""


def _with_bounds(tolerance: Tolerance, name: str, bounds: list[str]) -> Tolerance:
    changes: dict[str, Any] = {}
    for bound in bounds:
        field, _, text = bound.strip().partition("=")
        try:
            numbers = tuple(float(number) for number in text.split("/"))
        except ValueError:
            numbers = ()
        fits = field in _BOUNDS and numbers and all(0 <= number <= 1 for number in numbers)
        if not fits or (len(numbers) > 1 and field != "threshold"):
            fix = f"write overlap=0.99 (0 to 1); bounds: {', '.join(_BOUNDS)}"
            raise UsageError(f"{bound!r} is not a bound of a tolerance", fix=fix)
        changes[_BOUNDS[field]] = numbers if field == "threshold" else numbers[0]
    return replace(tolerance, name=name, **changes) if changes else tolerance


def choose_tolerance(name: str, *, fp16: bool, quantized: bool, device: str, few_bits: bool = False) -> Tolerance:
    """Return the tolerance of a name; for ``auto``, the one that fits the candidate, by the other arguments.

    Args:
        fp16: whether the candidate has FP16 values.
        quantized: whether the candidate quantizes activations.
        device: ``cpu``, ``dml``, or ``fp16-emulation`` for the FP16 emulation.
        few_bits: whether the candidate's weights were rounded to a few bits, and the reference's were not.

    Raises:
        UsageError: as ``find_tolerance``.
    """
    base, comma, bounds = name.partition(",")
    if base != "auto":
        return find_tolerance(name)
    if few_bits or quantized:
        chosen = "few-bits" if few_bits else "quantized"
    elif device == "fp16-emulation":
        chosen = device
    else:
        chosen = f"{'fp16' if fp16 else 'fp32'}-{'dml' if device == 'dml' else 'cpu'}"
    return find_tolerance(f"{chosen}{comma}{bounds}")


def proves(fp16: bool, device: DeviceInfo) -> str:
    """Return a text that says what a check on a device does not prove; empty if it proves all.

    ``fp16``: whether the candidate has FP16 values. On the CPU, a check then does not prove FP16 arithmetic.
    """
    if fp16 and device.provider == "cpu":
        # The CPU provider has no FP16 kernels for most operators: it casts to FP32, where nothing overflows.
        return "computes FP16 nodes in FP32: proves weight rounding and graph surgery, not FP16 arithmetic"
    return ""
