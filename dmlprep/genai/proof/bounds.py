"""Bounds for the difference between the logits of a prepared language model and the original's, with reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from dmlprep.core.errors import UsageError
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import tensors

NOISE_SPAN = 3 * 2**0.5
"""Factor: the original's margin between its two likeliest tokens is clear if it exceeds this multiple of the noise.

The error of a difference of two logits is the square root of 2 times that of one logit (the noise). Three times that
happens by chance at one position of 400.
"""

FEW_DECIDED = 0.25
"""Least share of positions with a clear margin; with fewer, agreement on the likeliest token proves nothing."""


@dataclass(frozen=True)
class LogitBounds:
    """Bounds for the logits of a prepared model of one precision.

    Attributes:
        name: name of the precision (``fp16``).
        kl: largest mean Kullback-Leibler divergence from the original, in nats.
        share: largest such divergence as a share of the original's own divergence from the uniform distribution.
        top1: least share of positions with the same likeliest token, among those where the original's is clear.
        perplexity: largest perplexity of the prepared model, as a multiple of the original's.
        reason: the source of the numbers, in one line.
    """

    name: str
    kl: float
    share: float
    top1: float
    perplexity: float
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.name}: KL <= {self.kl:g} nats and <= {self.share:g} of the original's information, "
            f"top-1 >= {self.top1:g} where decided, perplexity <= {self.perplexity:g} times"
        )


BOUNDS = {
    one.name: one
    for one in (
        LogitBounds("fp32", 1e-5, 1e-4, 0.99, 1.001, "another order of the same sums: differences of 1 % at most"),
        LogitBounds("fp16", 1e-3, 1e-2, 0.99, 1.01, "less than the loss of 8-bit weights: 0.0014 nats on an 8 B model"),
        LogitBounds("int8", 1e-2, 3e-2, 0.97, 1.02, "6- to 8-bit weights lose 0.0014 to 0.0055 nats on an 8 B model"),
        LogitBounds("int4", 0.2, 0.1, 0.95, 1.25, "plain 4-bit weights lose 0.072 nats on an 8 B model, 3-bit 0.23"),
    )
}
"""Bounds by name. Measured losses of an 8 B model: docs/language-models.md."""


def choose_bounds(name: str, precision: str) -> LogitBounds:
    """Return the bounds for logits by name; ``auto`` are those of ``precision``.

    Args:
        precision: the name of ``BOUNDS`` for the two models (``precision_beside``).

    Raises:
        UsageError: there are no such bounds.
    """
    if name == "auto":
        name = precision
    if name not in BOUNDS:
        raise UsageError(f"unknown tolerance {name!r}", where="--tolerance", fix=f"auto, {', '.join(BOUNDS)}")
    return BOUNDS[name]


_BLOCKS = {"MatMulNBits", "GatherBlockQuantized", "QMoE"}
_INTEGERS = {ir.DataType.INT4: 4, ir.DataType.UINT4: 4, ir.DataType.INT8: 8, ir.DataType.UINT8: 8}
_ORDER = ("int4", "int8", "fp16", "fp32")


def weights_of(model: Model) -> str:
    """Return the narrowest type among a model's weights: ``int4``, ``int8``, ``fp16`` (also BF16) or ``fp32``."""
    forms = {*_quantized(model)} or {
        "fp16" for one in tensors(model.ir) if one.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    }
    return next((name for name in _ORDER if name in forms), "fp32")


def _quantized(model: Model) -> Iterator[str]:
    for node in model.ir.graph.all_nodes():
        if node.op_type in _BLOCKS:
            bits = node.attributes.get("bits")
            yield "int8" if bits is not None and bits.as_int() > 4 else "int4"
        elif node.op_type == "DequantizeLinear" and node.inputs and node.inputs[0] is not None:
            weight = node.inputs[0].const_value
            if weight is not None and weight.dtype in _INTEGERS:
                yield f"int{_INTEGERS[weight.dtype]}"


def precision_beside(prepared: str, original: str) -> str:
    """Return the name of the bounds for a prepared model whose weights are of type ``prepared``.

    ``original`` is the type of the original's weights. Weights that both models quantize in the same way are the same
    numbers: they get the bounds of FP16, for the arithmetic around them. So does an FP32 result of an original that is
    not FP32. Otherwise the name is ``prepared``.
    """
    if prepared == original and prepared in ("int4", "int8"):
        return "fp16"
    if prepared == "fp32" and original != "fp32":
        return "fp16"
    return prepared
