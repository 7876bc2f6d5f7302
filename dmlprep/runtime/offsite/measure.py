"""How far outputs are from those expected: the measures of dmlprep's parity, with numpy alone.

What is printed on the other machine comes from here. ``dmlprep kit verify`` does not use it: it measures the outputs
that came back again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["compare"]

_CHUNK = 1 << 20
_FLOOR = 1e-6  # least max|expected| that differences are divided by
_MASK = -1e30  # values at or below are masks, and do not scale the differences of the others


def compare(
    groups: Sequence[tuple[Sequence[str], bool]],
    expected: Mapping[str, Any],
    found: Mapping[str, Any],
    bounds: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Measure one feed's outputs.

    Args:
        groups: names of outputs that belong together, and whether their rows are a set.
        bounds: ``max_rel``, ``cosine``, ``share_equal``, ``rows``.

    Returns:
        for each output its name, whether it ``passed``, and the numbers.
    """
    results = []
    left = [n for n in expected if not any(n in names for names, _ in groups)]
    for names, as_rows in [*groups, *(([n], False) for n in left)]:
        if not all(n in expected and n in found for n in names):
            continue
        measured = [_measure(n, expected[n], found[n], bounds) for n in names]
        if as_rows and not all(m["passed"] for m in measured):
            share = _share_of_rows(names, expected, found, float(bounds["max_rel"]))
            if share is not None:
                for m in measured:
                    m.update(passed=share >= bounds["rows"], out_of_tolerance=1.0 - share, note="as a set of rows")
        results += measured
    return results


def _measure(name: str, expected: Any, found: Any, bounds: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"output": name, "passed": False}
    if expected.shape != found.shape:
        return {**result, "note": f"shape {list(found.shape)}, expected {list(expected.shape)}"}
    if expected.dtype.kind != "f" and found.dtype.kind != "f":
        share = float(np.mean(expected == found)) if expected.size else 1.0
        return {**result, "passed": share >= bounds["share_equal"], "share_equal": share}
    top = 0.0
    for (piece,) in _pieces([expected]):
        top = max(top, float(np.max(np.abs(piece[np.isfinite(piece) & (piece > _MASK)]), initial=0.0)))
    scale = max(top, _FLOOR)
    worst = dot = own = other = 0.0
    outside = lost = count = 0
    limit = float(bounds["max_rel"])
    for a, b in _pieces([expected, found]):
        masked = a <= _MASK
        fine_a, fine_b = np.isfinite(a) & ~masked, np.isfinite(b)
        both = fine_a & fine_b
        with np.errstate(invalid="ignore"):
            kept = (b <= -6e4) if limit >= 1e-3 else (a == b) | (np.abs(a - b) <= limit * np.abs(a))
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (kept & masked)
        lost += int(np.count_nonzero(fine_a & ~fine_b))
        x, y = np.where(both, a, 0.0) / scale, np.where(both, b, 0.0) / scale
        difference = np.abs(x - y)
        worst = max(worst, float(np.max(difference, initial=0.0)))
        outside += int(np.count_nonzero((difference > limit) | (~both & ~same)))
        dot, own, other = dot + float(x @ y), own + float(x @ x), other + float(y @ y)
        count += a.size
    cosine = _cosine(dot, own, other) if count > 1 and top > _FLOOR else 1.0
    return {
        **result,
        "passed": outside == 0 and lost == 0 and cosine >= bounds["cosine"],
        "max_abs": worst * scale,
        "max_rel": worst,
        "cosine": cosine,
        "out_of_tolerance": outside / count if count else 0.0,
        "non_finite": lost,
    }


def _pieces(arrays: Sequence[Any]) -> Iterator[list[Any]]:
    """float64 of a million elements at a time."""
    flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
    for start in range(0, flat[0].size, _CHUNK):
        yield [a[start : start + _CHUNK].astype(np.float64) for a in flat]


def _cosine(dot: float, own: float, other: float) -> float:
    if own == 0.0 and other == 0.0:
        return 1.0
    if own == 0.0 or other == 0.0:
        return 0.0
    return max(-1.0, min(1.0, dot / math.sqrt(own) / math.sqrt(other)))


def _share_of_rows(
    names: Iterable[str], expected: Mapping[str, Any], found: Mapping[str, Any], limit: float
) -> float | None:
    """How many rows are found again, each used once; a row is the same row of every output side by side."""
    tables = []
    for side in (expected, found):
        if any(side[n].ndim == 0 or side[n].dtype.kind in "OUS" for n in names):
            return None
        if len({len(side[n]) for n in names}) != 1:
            return None
        tables.append([side[n].reshape(len(side[n]), math.prod(side[n].shape[1:])) for n in names])
    if any(a.shape[1:] != b.shape[1:] for a, b in zip(*tables)):  # noqa: B905 - Python 3.9
        return None
    rows = [len(tables[0][0]), len(tables[1][0])]
    if max(rows) == 0:
        return 1.0
    if max(rows) > 20_000:
        return None
    allowed = []
    for part in tables[0]:
        whole = part.astype(np.float64)
        top = float(np.max(np.abs(whole[np.isfinite(whole)]), initial=0.0))
        allowed.append(np.full(part.shape[1], 0.0 if part.dtype.kind in "iub" else limit * top))
    left, right = (np.concatenate([p.astype(np.float64) for p in table], axis=1) for table in tables)
    bound = np.concatenate(allowed)
    free = np.ones(len(right), dtype=bool)
    matched = 0
    for row in left:
        distance = np.abs(right - row)
        fits = np.flatnonzero(free & np.all((distance <= bound) | (np.isnan(right) & np.isnan(row)), axis=1))
        if fits.size:
            free[fits[np.argmin(np.nan_to_num(distance[fits]).sum(axis=1))]] = False
            matched += 1
    return matched / max(rows)
