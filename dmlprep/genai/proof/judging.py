"""What figures amount to: passed, failed, or not proven. Each function takes a verdict that passed."""

from __future__ import annotations

from typing import Any

import msgspec

from dmlprep.genai.proof.bounds import FEW_DECIDED, NOISE_SPAN, LogitBounds
from dmlprep.genai.proof.figures import Differences
from dmlprep.record import Finding, Verdict, finding
from dmlprep.record.generation import GreedyText, LogitFigures, Outcome, Perplexity

LEAST_INFORMATION = 1e-4
"""Nats by which the original's distributions must differ from the uniform one: FP32's own rounding makes 1e-10."""


def judge_logits(
    verdict: Verdict, differences: Differences, figures: LogitFigures | None, bounds: LogitBounds
) -> Verdict:
    """Return ``verdict`` with its outcome by the rows that were compared."""
    if differences.broken:
        text = f"the logits are NaN or infinite at {differences.broken} of {differences.positions} positions"
        return _with_outcome(verdict, "failed", finding("DP702", text))
    if differences.broken_original or figures is None:
        count = differences.broken_original
        text = f"the original's own logits are NaN or infinite at {count} of {differences.positions} positions"
        return _with_outcome(verdict, "not-proven", finding("DP881", text))
    if figures.information < LEAST_INFORMATION:
        text = "to the original all tokens are equally likely, so that its logits tell nothing"
        return _with_outcome(verdict, "not-proven", finding("DP881", text))
    most = min(bounds.kl, bounds.share * figures.information)
    if figures.kl > most:
        text = f"the KL divergence is {figures.kl:.2g} nats, {most:.2g} are allowed (of {figures.information:.3g})"
        return _with_outcome(verdict, "failed", _differs(text, figures))
    if figures.top1_decided < bounds.top1:
        equal = round(figures.top1_decided * figures.decided)
        text = f"the most likely token is the same at {equal} of the {figures.decided} positions with a clear one"
        return _with_outcome(verdict, "failed", _differs(text, figures))
    if figures.decided < FEW_DECIDED * figures.positions:
        text = (
            f"the original's two most likely tokens are closer than the noise ({NOISE_SPAN * figures.noise:.2g}) at "
            f"{figures.positions - figures.decided} of {figures.positions} positions, so that agreement on the first "
            "proves nothing"
        )
        return _with_outcome(verdict, "not-proven", finding("DP881", text))
    return verdict


def _with_outcome(verdict: Verdict, outcome: Outcome, why: Finding) -> Verdict:
    return msgspec.structs.replace(verdict, outcome=outcome, reason=why.message, findings=[why, *verdict.findings])


def _differs(text: str, figures: LogitFigures) -> Finding:
    facts: dict[str, Any] = {name: getattr(figures, name) for name in ("kl", "information", "top1", "noise")}
    return finding("DP880", text, **facts)


def judge_perplexity(verdict: Verdict, found: Perplexity | None, bounds: LogitBounds) -> Verdict:
    """Return ``verdict`` with its outcome by the perplexity of a text."""
    if found is None:
        return _with_outcome(verdict, "not-proven", finding("DP881", "the perplexity is not finite"))
    if found.ratio > bounds.perplexity:
        text = (
            f"the perplexity is {found.prepared:.4g}, the original's {found.original:.4g}: {found.ratio:.4g} times as "
            f"much, {bounds.perplexity:g} times are allowed"
        )
        return _with_outcome(verdict, "failed", finding("DP882", text, ratio=found.ratio))
    return verdict


def judge_greedy(verdict: Verdict, text: GreedyText) -> Verdict:
    """Return ``verdict`` with its outcome by both texts: where they differ, the margin decides whether they may."""
    if text.equal == len(text.original):
        return verdict
    parted = f"the texts part at token {text.equal + 1} of {len(text.original)}"
    if text.margin is None or text.noise is None:
        return msgspec.structs.replace(verdict, outcome="not-proven", reason=parted)
    span = NOISE_SPAN * text.noise
    known = f"the original's margin there is {text.margin:.2g}, the noise {span:.2g}"
    if text.margin <= span:
        return msgspec.structs.replace(verdict, outcome="not-proven", reason=f"{parted}; {known}")
    return _with_outcome(verdict, "failed", finding("DP883", f"{parted}, though {known}"))
