"""Compute the outputs that a package's sample should print: the packaged model runs on the CPU, in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np

from dmlprep.core.errors import DmlprepError
from dmlprep.metrics import choose_tolerance, holds_fp16, quantizes
from dmlprep.package.building import Run
from dmlprep.package.contract import Meaning, SampleOutput, Tensor
from dmlprep.parity import Reference
from dmlprep.portable.arrays import Array
from dmlprep.portable.measure import MASK
from dmlprep.portable.sample import example
from dmlprep.portable.steep import STEEP

_LIMIT = 120.0
"""Time limit in seconds for the load and for the run."""

_SHOWN = 8
"""Number of elements of an output that the sample prints."""

_TYPES = frozenset(
    ("float16", "float32", "float64", "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
)
"""Element types that the samples of all languages can fill."""

_LARGEST = 1 << 25
"""Most elements of all inputs: to fill one takes some 32 bytes."""

_PIECE = 1 << 20

_IN_ORDER: frozenset[Meaning] = frozenset(("", "probabilities", "scores", "top values", "picture"))
"""Meanings of numbers that change little if the model's numbers do. Indices and boxes can change places."""


def sample_outputs(run: Run, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[list[SampleOutput], str]:
    """Run a model on the CPU with the inputs that the sample fills, and return the outputs to expect.

    Returns:
        the outputs, without those that begin with NaN or infinity, and the reason if there are none. A model may not
        run on these inputs, or draw random numbers. It may have types that a sample cannot fill, or too large inputs.
    """
    if odd := next((one for one in (*inputs, *outputs) if one.type not in _TYPES), None):
        return [], f"the sample has no numbers for {odd.name!r} of type {odd.type}"
    if sum(prod(1 if isinstance(size, str) else size for size in one.shape) for one in inputs) > _LARGEST:
        return [], f"its inputs have more than {_LARGEST:,} elements"
    feed = {one.name: example(msgspec.to_builtins(one)) for one in inputs}
    try:
        with Reference.of(run.model, [feed], time_limit=_LIMIT) as reference:
            reference.compute()
            if drawn := reference.random_node():
                return [], f"{drawn} draws random numbers"
            values = reference.outputs(0)
            kinds = {name: group.kind for group in reference.groups() for name in group.names}
            all_outputs = [_output(one, values[one.name], _bound(run, one, kinds.get(one.name, ""))) for one in outputs]
    except DmlprepError as error:  # also a failed session
        return [], run.machine.hidden(error.what)
    finite = [one for one in all_outputs if np.isfinite(one.first).all()]
    return finite, "" if finite else "all outputs begin with NaN or infinity"


def _bound(run: Run, one: Tensor, kind: str) -> float | None:
    """Return the largest relative difference to expect between the CPU and DirectML; ``None`` if there is no such."""
    unordered = kind in ("rows", "ranked") and one.meaning not in ("scores", "top values")
    if unordered or one.meaning not in _IN_ORDER or (one.type[0] != "f" and one.meaning != "picture"):
        return None
    fp16, quantized = holds_fp16(run.model), quantizes(run.model)
    tolerance = choose_tolerance("auto", fp16=fp16, quantized=quantized, device="dml")
    if kind in STEEP or one.meaning == "probabilities":
        return tolerance.stray
    noisy = (m.bound for v in run.record.verdicts for m in v.outputs if m.output == one.name and m.error == m.max_rel)
    return max(tolerance.max_rel, *noisy, 0.0)


def _output(one: Tensor, value: Array, bound: float | None) -> SampleOutput:
    flat = value.reshape(-1)
    top = max((_largest(flat[start : start + _PIECE]) for start in range(0, flat.size, _PIECE)), default=0.0)
    allowed = None if bound is None else max(bound * top, 1.0 if one.type[0] != "f" else 1e-6)
    return SampleOutput(
        name=one.name,
        shape=list(value.shape),
        first=[float(f"{number:.7g}") for number in flat[:_SHOWN].astype(np.float64)],
        allowed=None if allowed is None else float(f"{allowed:.2g}"),
    )


def _largest(piece: Array) -> float:
    """Return the largest absolute value, without masks, infinity and NaN."""
    numbers: Any = piece.astype(np.float64)
    return float(np.max(np.abs(numbers), initial=0.0, where=np.isfinite(numbers) & (numbers > MASK)))
