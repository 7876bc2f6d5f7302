"""Compare the logits of two models, position by position, and judge them.

Each ``judge_`` function gets a verdict that passed, and returns it with its final outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from dmlprep.genai.proof.bounds import BOUNDS, FEW_DECIDED, NOISE_SPAN, LogitBounds
from dmlprep.portable.arrays import Array
from dmlprep.record import Finding, Verdict, finding
from dmlprep.record.generation import GreedyText, LogitFigures, Outcome, Perplexity

_TOP = 5

_LIKELY = 20
"""Number of likeliest tokens of each side whose differences are also measured separately."""

_DEVIATION = 1.4826
"""Factor from the median absolute deviation to the standard deviation, for normally distributed numbers."""


def _log_softmax(row: Array) -> Array:
    shifted = row - row.max()
    logs: Array = shifted - np.log(np.exp(shifted).sum())
    return logs


def margin_of(row: Array) -> float:
    """Return the largest logit of a row minus the second largest; 0 if the row has one logit."""
    if row.size < 2:
        return 0.0
    second, first = np.partition(np.asarray(row, np.float64), -2)[-2:]
    return float(first - second)


def noise_of(original: Array, candidate: Array) -> float:
    """Return the random error of a logit at one position (the noise), from the logits of both models.

    It is the root mean square of the differences of the two rows, after their mean is subtracted. Likely tokens have
    larger logits, and so larger errors, than the thousands that never come. So the result is at least the deviation
    among the likely tokens of both sides. That deviation uses the median: one wrong token is not a random error.
    """
    apart = np.asarray(candidate, np.float64) - np.asarray(original, np.float64)
    few = min(_LIKELY, apart.size)
    among = apart[np.union1d(np.argpartition(original, -few)[-few:], np.argpartition(candidate, -few)[-few:])]
    deviation = _DEVIATION * float(np.median(np.abs(among - np.median(among))))
    return max(deviation, float(np.sqrt(np.mean((apart - apart.mean()) ** 2))))


class Differences:
    """Collector of the differences between the logits of two models, position by position.

    Attributes:
        broken: number of positions where only the candidate's logits are NaN or infinite.
        broken_original: number of positions where the original's logits are NaN or infinite.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []
        self.broken = 0
        self.broken_original = 0

    @property
    def positions(self) -> int:
        """The number of all positions, including those with logits that are NaN or infinite."""
        return len(self._rows) + self.broken + self.broken_original

    def add(self, original: Array, candidate: Array) -> None:
        """Compare logits [positions, vocabulary] of both models, and add the differences."""
        for one, other in zip(original, candidate, strict=True):
            self._add(np.asarray(one, np.float64), np.asarray(other, np.float64))

    def _add(self, original: Array, candidate: Array) -> None:
        if not np.isfinite(original).all():
            self.broken_original += 1
            return
        if not np.isfinite(candidate).all():
            self.broken += 1
            return
        apart = candidate - original
        apart -= apart.mean()
        logs, others = _log_softmax(original), _log_softmax(candidate)
        chances = np.exp(logs)
        # Rounding makes a divergence of equal rows slightly negative.
        kl = max(0.0, float((chances * (logs - others)).sum()))
        information = max(0.0, float((chances * logs).sum()) + float(np.log(logs.size)))
        few = min(_TOP, original.size)
        top = np.argpartition(original, -few)[-few:]
        self._rows.append(
            (
                float(np.abs(apart).max()),
                float(np.abs(apart).mean()),
                kl,
                information,
                float(int(original.argmax()) == int(candidate.argmax())),
                len(set(top.tolist()) & set(np.argpartition(candidate, -few)[-few:].tolist())) / few,
                margin_of(original),
                noise_of(original, candidate),
            )
        )

    def figures(self) -> LogitFigures | None:
        """Return figures over all positions where the logits of both sides are finite; ``None`` if there are none."""
        if not self._rows:
            return None
        most, mean, kl, information, top1, top5, margin, noise = np.array(self._rows).T
        decided = margin > NOISE_SPAN * noise
        return LogitFigures(
            positions=len(self._rows),
            max_difference=float(most.max()),
            mean_difference=float(mean.mean()),
            kl=float(kl.mean()),
            worst_kl=float(kl.max()),
            information=float(information.mean()),
            top1=float(top1.mean()),
            top5=float(top5.mean()),
            margin=float(np.median(margin)),
            noise=float(np.sqrt(np.mean(noise**2))),
            decided=int(decided.sum()),
            top1_decided=float(top1[decided].mean()) if decided.any() else 1.0,
        )


class Losses:
    """Collector of the negative log-likelihoods of tokens, for the perplexity of two models on one text."""

    def __init__(self) -> None:
        self._sums = [0.0, 0.0]
        self._count = 0

    def add(self, tokens: Sequence[int], rows: Iterable[tuple[Array, Array]]) -> None:
        """Add tokens of the text; ``rows`` has for each the logits of the original and of the candidate before it."""
        for token, pair in zip(tokens, rows, strict=True):
            for side, row in enumerate(pair):
                self._sums[side] -= float(_log_softmax(np.asarray(row, np.float64))[token])
            self._count += 1

    def perplexity(self) -> Perplexity | None:
        """Return the perplexities of both models; ``None`` if no token was added, or one is not finite."""
        if not self._count:
            return None
        with np.errstate(over="ignore"):
            original, prepared = (float(np.exp(total / self._count)) for total in self._sums)
        if not np.isfinite([original, prepared]).all():
            return None
        return Perplexity(self._count, original, prepared)


LEAST_INFORMATION = 1e-4
"""Least mean divergence, in nats, of the original's distributions from the uniform one; with less, they prove nothing.

FP32's own rounding causes 1e-10.
"""


def judge_logits(
    verdict: Verdict, differences: Differences, figures: LogitFigures | None, bounds: LogitBounds
) -> Verdict:
    """Return ``verdict`` with its outcome by the logits: ``failed``, ``not-proven``, or unchanged if they pass.

    ``figures`` are those of ``differences``.
    """
    if differences.broken:
        text = f"the logits are NaN or infinite at {differences.broken} of {differences.positions} positions"
        return _with_outcome(verdict, "failed", finding("DP702", text))
    if differences.broken_original or figures is None:
        count = differences.broken_original
        text = f"the original's own logits are NaN or infinite at {count} of {differences.positions} positions"
        return _with_outcome(verdict, "not-proven", finding("DP881", text))
    if figures.information < LEAST_INFORMATION:
        text = "the original rates all tokens as equally likely, so its logits prove nothing"
        return _with_outcome(verdict, "not-proven", finding("DP881", text))
    most = min(bounds.kl, bounds.share * figures.information)
    if figures.kl > most:
        text = (
            f"the KL divergence is {figures.kl:.2g} nats, at most {most:.2g} allowed "
            f"(the original's information: {figures.information:.3g})"
        )
        return _with_outcome(verdict, "failed", _differs(text, figures))
    if figures.top1_decided < bounds.top1:
        equal = round(figures.top1_decided * figures.decided)
        text = f"the most likely token is the same at {equal} of the {figures.decided} positions with a clear favorite"
        return _with_outcome(verdict, "failed", _differs(text, figures))
    rounding = BOUNDS["fp32"]
    is_equal = figures.kl < min(rounding.kl, rounding.share * figures.information)
    if figures.decided < FEW_DECIDED * figures.positions and not is_equal:
        text = (
            f"the original's two most likely tokens are closer than the noise ({NOISE_SPAN * figures.noise:.2g}) at "
            f"{figures.positions - figures.decided} of {figures.positions} positions, so agreement on the "
            "most likely one proves nothing"
        )
        return _with_outcome(verdict, "not-proven", finding("DP881", text))
    return verdict


def _with_outcome(verdict: Verdict, outcome: Outcome, why: Finding) -> Verdict:
    return msgspec.structs.replace(verdict, outcome=outcome, reason=why.message, findings=[why, *verdict.findings])


def _differs(text: str, figures: LogitFigures) -> Finding:
    facts: dict[str, Any] = {name: getattr(figures, name) for name in ("kl", "information", "top1", "noise")}
    return finding("DP880", text, **facts)


def judge_perplexity(verdict: Verdict, perplexity: Perplexity | None, bounds: LogitBounds) -> Verdict:
    """Return ``verdict`` with its outcome by the perplexity of a text: ``failed``, ``not-proven``, or unchanged."""
    if perplexity is None:
        return _with_outcome(verdict, "not-proven", finding("DP881", "the perplexity is not finite"))
    if perplexity.ratio > bounds.perplexity:
        text = (
            f"the perplexity is {perplexity.prepared:.4g}, the original's {perplexity.original:.4g}: "
            f"{perplexity.ratio:.4g} times as much, at most {bounds.perplexity:g} times allowed"
        )
        return _with_outcome(verdict, "failed", finding("DP882", text, ratio=perplexity.ratio))
    return verdict


def judge_greedy(verdict: Verdict, text: GreedyText) -> Verdict:
    """Return ``verdict`` with its outcome by the texts that both models generate; unchanged if they are equal.

    Texts that differ are ``failed`` if the original's margin at the first different token is clear, otherwise
    ``not-proven``.
    """
    if text.equal == len(text.original):
        return verdict
    parted = f"the texts first differ at token {text.equal + 1} of {len(text.original)}"
    if text.margin is None or text.noise is None:
        return msgspec.structs.replace(verdict, outcome="not-proven", reason=parted)
    span = NOISE_SPAN * text.noise
    known = f"the original's margin there is {text.margin:.2g}, the noise {span:.2g}"
    if text.margin <= span:
        return msgspec.structs.replace(verdict, outcome="not-proven", reason=f"{parted}; {known}")
    return _with_outcome(verdict, "failed", finding("DP883", f"{parted}, though {known}"))
