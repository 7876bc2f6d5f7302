"""What the outputs of the trained models are for: each task's own measure, of the original's and the candidate's.

Each function takes two dicts of arrays by output name, of one feed, and returns a number and whether the task is done
as well as before. They are metrics as ``dmlprep compare --metric`` takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["TASKS"]

Array = np.ndarray[Any, Any]
Side = dict[str, Array]
Judged = tuple[float, bool]


def _first(side: Side) -> Array:
    return np.asarray(next(iter(side.values())), dtype=np.float64)


def _overlap(ours: Array, theirs: Array) -> float:
    either = np.count_nonzero(ours | theirs)
    return np.count_nonzero(ours & theirs) / either if either else 1.0


def text(reference: Side, candidate: Side) -> Judged:
    """The same text by CTC's best path: 1 or 0."""

    def read(side: Side) -> list[int]:
        best = np.argmax(np.squeeze(_first(side)), axis=-1)
        return [int(a) for a, b in zip(best, [-1, *best[:-1]], strict=True) if a not in (b, 0)]

    same = read(reference) == read(candidate)
    return float(same), same


def labels(reference: Side, candidate: Side) -> Judged:
    """The share of equal labels where the output holds labels; all of them are asked for."""
    share = float(np.mean(np.round(_first(reference)) == np.round(_first(candidate))))
    return share, share == 1.0


def winner(reference: Side, candidate: Side) -> Judged:
    """The share of rows in which the same class wins; all of them are asked for."""
    share = float(np.mean(np.argmax(_first(reference), axis=-1) == np.argmax(_first(candidate), axis=-1)))
    return share, share == 1.0


def masks(reference: Side, candidate: Side) -> Judged:
    """IoU of the masks at 0.3, the threshold of text detectors: at least 0.98."""
    iou = _overlap(_first(reference) > 0.3, _first(candidate) > 0.3)
    return iou, iou >= 0.98


def matte(reference: Side, candidate: Side) -> Judged:
    """Mean difference of the matte, of 0 to 1: at most 0.005."""
    off = float(np.mean(np.abs(_first(reference) - _first(candidate))))
    return off, off <= 0.005


def notes(reference: Side, candidate: Side) -> Judged:
    """Share of notes (onset above 0.5, at most two frames apart) found on both sides: at least 0.95."""

    def found(side: Side) -> set[tuple[int, int]]:
        onsets = np.asarray(side["StatefulPartitionedCall:2"])[0]
        frames = np.asarray(side["StatefulPartitionedCall:1"])[0]
        padded = np.pad(onsets, ((1, 1), (0, 0)))
        peaks = (onsets > 0.5) & (onsets >= padded[:-2]) & (onsets > padded[2:])
        return {(int(t), int(p)) for t, p in np.argwhere(peaks) if frames[t : t + 6, p].max() > 0.3}

    ours, theirs = found(reference), found(candidate)
    both = sum(any((t + d, p) in theirs for d in (-2, -1, 0, 1, 2)) for t, p in ours)
    back = sum(any((t + d, p) in ours for d in (-2, -1, 0, 1, 2)) for t, p in theirs)
    share = (both + back) / max(1, len(ours) + len(theirs)) if ours or theirs else 1.0
    return share, share >= 0.95


def speech(reference: Side, candidate: Side) -> Judged:
    """Difference of the probability of speech: at most 0.02."""
    off = float(np.max(np.abs(_first(reference) - _first(candidate))))
    return off, off <= 0.02


def cosine(reference: Side, candidate: Side) -> Judged:
    """Least cosine of the embeddings (the mean of a sentence's tokens): at least 0.999."""

    def pooled(side: Side) -> Array:
        found = _first(side)
        return found.mean(axis=1) if found.ndim == 3 else found.reshape(1, -1)

    a, b = pooled(reference), pooled(candidate)
    found = float(np.min(np.sum(a * b, axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))))
    return found, found >= 0.999


def score(reference: Side, candidate: Side) -> Judged:
    """Difference of mean opinion scores, of 1 to 5: at most 0.05."""
    off = float(np.max(np.abs(_first(reference) - _first(candidate))))
    return off, off <= 0.05


def detections(reference: Side, candidate: Side) -> Judged:
    """Boxes of [1, 4 + classes, places] after suppression at IoU 0.45: share found again at IoU 0.9, at least 0.95."""
    ours, theirs = (_boxes(_first(side)[0].T) for side in (reference, candidate))
    both = sum(any(_iou(a, b) > 0.9 for b in theirs) for a in ours)
    back = sum(any(_iou(a, b) > 0.9 for b in ours) for a in theirs)
    share = (both + back) / max(1, len(ours) + len(theirs)) if len(ours) + len(theirs) else 1.0
    return share, share >= 0.95


def places(reference: Side, candidate: Side) -> Judged:
    """IoU of the places whose score is above 0.3, over all outputs with scores (the last axis below 32 wide): 0.95."""

    def sure(side: Side) -> Array:
        scores = [np.asarray(v)[..., 4:] if v.shape[-1] == 6 else v for v in side.values() if v.shape[-1] < 32]
        return np.concatenate([np.asarray(s).reshape(-1) for s in scores]) > 0.3

    iou = _overlap(sure(reference), sure(candidate))
    return iou, iou >= 0.95


def hertz(reference: Side, candidate: Side) -> Judged:
    """Share of voiced frames whose pitch is less than 20 cents apart: at least 0.98."""
    voiced = np.minimum(reference["confidence"], candidate["confidence"]) > 0.9
    cents = 1200 * np.abs(np.log2(np.maximum(reference["pitch"], 1) / np.maximum(candidate["pitch"], 1)))
    share = float(np.mean(cents[voiced] < 20)) if voiced.any() else 1.0
    return share, share >= 0.98


def _boxes(rows: Array) -> list[Array]:
    """[left, top, right, bottom] of rows (middle, size, scores) with a score above 0.25, the surest first."""
    scores = rows[:, 4:22].max(axis=1)
    order = [int(i) for i in np.argsort(-scores) if scores[i] > 0.25]
    found: list[Array] = []
    for index in order[:300]:
        x, y, width, height = rows[index, :4]
        box = np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
        if all(_iou(box, other) < 0.45 for other in found):
            found.append(box)
    return found


def _iou(a: Array, b: Array) -> float:
    sides = np.maximum(0.0, np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]))
    common = float(np.prod(sides))
    return common / max(float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - common, 1e-9)


TASKS: dict[str, Callable[[Side, Side], Judged]] = {
    task.__name__: task
    for task in (text, labels, winner, masks, matte, notes, speech, cosine, score, detections, places, hertz)
}
"""By name."""
