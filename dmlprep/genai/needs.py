"""Compute the device memory for weights and cache, and the longest sequence and largest batch that fit.

Intermediate results of nodes and the logits of a prompt are not counted (``logits_token`` is for one token).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import onnx_ir as ir

from dmlprep.core.text.sizes import bytes_text
from dmlprep.directml.vram.device import bucket_bytes, committed_bytes
from dmlprep.genai.config import GenaiConfig
from dmlprep.genai.geometry import longest
from dmlprep.genai.names import layers_of, named
from dmlprep.genai.providers import shares_buffer
from dmlprep.graph.model import Model
from dmlprep.record import Finding, finding
from dmlprep.record.generation import Needs

_MOST = 1 << 24
"""Largest sequence length and batch size that the search for fitting ones tries."""


def weight_bytes(model: Model) -> int:
    """Return the device memory for the initializers of a model, in bytes."""
    return sum(
        committed_bytes(tensor.nbytes)
        for value in model.ir.graph.initializers.values()
        if (tensor := value.const_value) is not None and tensor.dtype is not ir.DataType.STRING
    )


def needs_of(config: GenaiConfig, decoder: Model, weights: int, vram: int | None = None) -> Needs | None:
    """Compute the device memory that a folder with one decoder needs.

    Args:
        weights: size of the weights of all its models, in bytes.
        vram: memory of the device in bytes; ``None``: the result has no limits that fit.

    Returns:
        the needs; ``None`` if heads, head size, layers or the length are not known.
    """
    values = {value.name: value for value in decoder.ir.graph.inputs if value.name}
    layers = layers_of(config, "decoder", values)
    most = longest(config)
    rows = [_row(config, values[name]) for name in (*layers.keys.values(), *layers.values.values())]
    known = [row for row in rows if row is not None]
    if not known or len(known) != len(rows) or not most:
        return None
    copies = 1 if shares_buffer(config) else 2
    batch = max(1, config.number("search.batch_size") or 1) * max(1, config.number("search.num_beams") or 1)

    def cache(length: int, sequences: int) -> int:
        return copies * sum(bucket_bytes(row * length * sequences) for row in known)

    needs = Needs(weights, cache(most, batch), copies * sum(known), _logits(config, decoder), most, batch)
    if vram is None:
        return needs
    free = vram - weights
    context = config.number("model.context_length") or most
    return msgspec.structs.replace(
        needs,
        longest_fit=_largest(lambda length: length <= context and cache(length, batch) <= free),
        batch_fit=_largest(lambda sequences: cache(most, sequences) <= free),
    )


def _row(config: GenaiConfig, value: ir.Value) -> int | None:
    """Return the size in bytes of one token of one sequence in a cache input ``[batch, heads, tokens, size]``.

    ``None`` if heads, head size or type are not known.
    """
    shape = value.shape.dims if value.shape is not None else ()

    def size_of(axis: int, key: str) -> int:
        own = shape[axis] if len(shape) == 4 else None
        return own if isinstance(own, int) and own > 0 else config.number(f"model.decoder.{key}") or 0

    heads, size = size_of(1, "num_key_value_heads"), size_of(3, "head_size")
    if heads <= 0 or size <= 0 or value.dtype is None or value.dtype is ir.DataType.STRING:
        return None
    return (heads * size * value.dtype.bitwidth + 7) // 8


def _logits(config: GenaiConfig, decoder: Model) -> int:
    name = named(config, "decoder", "outputs", "logits")
    logits = next((value for value in decoder.ir.graph.outputs if value.name == name), None)
    bits = logits.dtype.bitwidth if logits is not None and logits.dtype not in (None, ir.DataType.STRING) else 16
    return max(0, config.number("model.vocab_size") or 0) * bits // 8


def _largest(fits: Callable[[int], bool]) -> int:
    """Return the largest number, at least 0, for which ``fits`` is True. It must be True for all smaller numbers."""
    low, high = 0, 1
    while high <= _MOST and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def needs_finding(needs: Needs | None, vram: int) -> Finding | None:
    """Return a finding if weights and cache do not fit into ``vram`` bytes, or if the need is unknown (``None``).

    ``None`` if they fit.
    """
    if needs is None:
        text = "memory need unknown: heads, head size, type or length of the cache are unknown"
        remedy = "write search.max_length, model.decoder.num_key_value_heads and head_size"
        return finding("DP862", text, severity="warning", remedy=remedy)
    if needs.total <= vram:
        return None
    need = f"weights and cache need {bytes_text(needs.total)}"
    text = f"{need} at max_length {needs.max_length}, of {bytes_text(vram)}"
    remedy = "no max_length fits: use INT4 weights, a smaller batch or a smaller model"
    if needs.longest_fit:
        remedy = f"max_length {needs.longest_fit} fits"
    return finding("DP862", text, node="search.max_length", remedy=remedy, needs=needs.total, has=vram)
