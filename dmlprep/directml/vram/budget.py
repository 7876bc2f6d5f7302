"""Compare an estimate with the memory of a device."""

from __future__ import annotations

import re

from dmlprep.core.errors import UsageError
from dmlprep.core.text.sizes import bytes_text
from dmlprep.record import Finding, finding
from dmlprep.record.memory import MemoryEstimate

_UNITS = {"": 1, "B": 1, **{f"{p}B": 1000**n for n, p in enumerate("KMGT", 1)}}
_UNITS |= {f"{p}IB": 1024**n for n, p in enumerate("KMGT", 1)} | {p: 1000**n for n, p in enumerate("KMGT", 1)}

_AMOUNT = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]{0,3})\s*", re.ASCII)

_NAMED = 3
"""The most tensors, and the most ways to need less memory, that the text of a finding names."""


def vram_bytes(text: str | int) -> int:
    """Return the bytes of ``4GB``, ``800 MB`` (powers of 1000), ``4GiB`` (powers of 1024), or a number of bytes.

    Raises:
        UsageError: ``text`` is not an amount of memory, or is less than one byte.
    """
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    match = _AMOUNT.fullmatch(str(text))
    unit = _UNITS.get(match[2].upper()) if match else None
    amount = int(float(match[1]) * unit) if match and unit else 0
    if amount < 1:
        raise UsageError(f"{text!r} is not an amount of memory", where="--vram", fix="write 4GB, 800MB or 4GiB")
    return amount


def over_budget(estimate: MemoryEstimate, vram: int) -> Finding | None:
    """Return finding DP530 if a session needs more than ``vram`` bytes, DP531 if the need is unknown.

    ``None`` means that the session fits.
    """
    if not estimate.known:
        return finding("DP531", not_enough(estimate, vram), vram=vram)
    if estimate.peak <= vram:
        return None
    largest = ", ".join(f"{one.name} ({one.kind}, {bytes_text(one.nbytes)})" for one in estimate.largest[:_NAMED])
    helping = [way for way in estimate.ways if way.peak < estimate.peak][:_NAMED]
    fitting = {way.how: ", which fits" if way.peak <= vram else "" for way in helping}
    return finding(
        "DP530",
        f"{not_enough(estimate, vram)}; most when {f'{estimate.at} runs' if estimate.at else 'it is loaded'}; "
        f"the largest: {largest}",
        node=estimate.at,
        remedy="; ".join(f"{way.how}: {bytes_text(way.peak)}{fitting[way.how]}" for way in helping) or None,
        peak=estimate.peak,
        vram=vram,
        weights=estimate.weights,
        activations=estimate.activations,
        feeds=estimate.feeds,
    )


def not_enough(estimate: MemoryEstimate, vram: int) -> str:
    """Say in one clause that ``vram`` bytes are too few, or why the need is unknown.

    Only for an estimate for which ``over_budget`` returns a finding.
    """
    if not estimate.known:
        return f"the memory that a session needs is unknown: {estimate.unknown}"
    return f"a session needs {bytes_text(estimate.peak)} of the device's memory, and it has {bytes_text(vram)}"
