"""What figures amount to: passed, failed, or not proven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmlprep.genai.proof.bounds import FEW_DECIDED, NOISE_SPAN, LogitBounds
from dmlprep.genai.proof.figures import Differences
from dmlprep.record import Finding, finding
from dmlprep.record.generation import GreedyText, LogitFigures, Outcome, Perplexity

__all__ = ["Judged", "judge_greedy", "judge_logits", "judge_perplexity"]

LEAST_INFORMATION = 1e-4
"""Nats by which the original's distributions must differ from the uniform one: FP32's own rounding makes 1e-10."""


@dataclass(frozen=True)
class Judged:
    """An outcome with its reason; empty where it passed."""

    outcome: Outcome
    reason: str = ""
    findings: tuple[Finding, ...] = ()


def judge_logits(differences: Differences, figures: LogitFigures | None, bounds: LogitBounds) -> Judged:
    """Of the rows that were compared."""
    if differences.broken:
        text = f"the logits are NaN or infinite at {differences.broken} of {differences.positions} positions"
        return Judged("failed", text, (finding("DP702", text),))
    if differences.broken_original or figures is None:
        count = differences.broken_original
        return _unproven(
            f"the original's own logits are NaN or infinite at {count} of {differences.positions} positions"
        )
    if figures.information < LEAST_INFORMATION:
        return _unproven("to the original all tokens are equally likely, so that its logits tell nothing")
    most = min(bounds.kl, bounds.share * figures.information)
    if figures.kl > most:
        text = f"the KL divergence is {figures.kl:.2g} nats, {most:.2g} are allowed (of {figures.information:.3g})"
        return _differs(text, figures)
    if figures.top1_decided < bounds.top1:
        equal = round(figures.top1_decided * figures.decided)
        text = f"the most likely token is the same at {equal} of the {figures.decided} positions with a clear one"
        return _differs(text, figures)
    if figures.decided < FEW_DECIDED * figures.positions:
        return _unproven(
            f"the original's two most likely tokens are closer than the noise ({NOISE_SPAN * figures.noise:.2g}) at "
            f"{figures.positions - figures.decided} of {figures.positions} positions, so that agreement on the first "
            "proves nothing"
        )
    return Judged("passed")


def _unproven(text: str) -> Judged:
    return Judged("not-proven", text, (finding("DP881", text),))


def _differs(text: str, figures: LogitFigures) -> Judged:
    facts: dict[str, Any] = {
        "kl": figures.kl,
        "information": figures.information,
        "top1": figures.top1,
        "noise": figures.noise,
    }
    return Judged("failed", text, (finding("DP880", text, **facts),))


def judge_perplexity(found: Perplexity | None, bounds: LogitBounds) -> Judged:
    """Of a text."""
    if found is None:
        return _unproven("the perplexity is not finite")
    if found.ratio > bounds.perplexity:
        text = (
            f"the perplexity is {found.prepared:.4g}, the original's {found.original:.4g}: {found.ratio:.4g} times as "
            f"much, {bounds.perplexity:g} times are allowed"
        )
        return Judged("failed", text, (finding("DP882", text, ratio=found.ratio),))
    return Judged("passed")


def judge_greedy(text: GreedyText) -> Judged:
    """Of what both write: where they part, the margin says whether they had to agree."""
    if text.equal == len(text.original):
        return Judged("passed")
    parted = f"the texts part at token {text.equal + 1} of {len(text.original)}"
    if text.margin is None or text.noise is None:
        return Judged("not-proven", parted)
    span = NOISE_SPAN * text.noise
    known = f"the original's margin there is {text.margin:.2g}, the noise {span:.2g}"
    if text.margin <= span:
        return Judged("not-proven", f"{parted}; {known}")
    return Judged("failed", f"{parted}, though {known}", (finding("DP883", f"{parted}, though {known}"),))
