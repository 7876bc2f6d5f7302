"""How far a prepared language model is from its original: logits, perplexity, greedy text."""

from __future__ import annotations

from typing import Literal

import msgspec

from dmlprep.record.aliases import SessionDevice
from dmlprep.record.verdicts import Verdict

Outcome = Literal["passed", "failed", "not-proven", "not-run"]


class LogitFigures(msgspec.Struct, frozen=True):
    """Logits of a candidate against those of the original, over positions of equal tokens.

    Attributes:
        positions: how many tokens were predicted.
        max_difference, mean_difference: of the absolute differences of all logits. At each position the mean difference
            is taken out, which changes no probability.
        kl: mean Kullback-Leibler divergence of the candidate's next-token distribution from the original's, in nats.
        worst_kl: the largest at one position.
        information: the original's own divergence from the uniform distribution, in nats: what ``kl`` is a loss of.
        top1: share of positions at which the most likely token is the same.
        top5: mean share of the five most likely tokens that is the same, in any order.
        margin: median of the original's logit of its first token less that of its second.
        noise: how far a logit is off by chance: root mean square of the differences, or the deviation among the likely
            tokens where that is larger.
        decided: positions at which the margin is beyond the noise.
        top1_decided: share of those at which the most likely token is the same; 1 where there are none.
    """

    positions: int
    max_difference: float
    mean_difference: float
    kl: float
    worst_kl: float
    information: float
    top1: float
    top5: float
    margin: float
    noise: float
    decided: int
    top1_decided: float


class Perplexity(msgspec.Struct, frozen=True):
    """Perplexity on a text of ``tokens``: e to the mean negative log-likelihood of each token after those before it."""

    tokens: int
    original: float
    prepared: float

    @property
    def ratio(self) -> float:
        """The prepared model's as a multiple of the original's."""
        return self.prepared / self.original


class GreedyText(msgspec.Struct, frozen=True):
    """What both models write when the most likely token is always taken.

    Attributes:
        equal: tokens that are equal before the first that is not.
        margin: of the original, at the first token that differs; ``None`` where all are equal, or it is not known.
        noise: of the candidate there.
        original, prepared: the tokens.
        original_text, prepared_text: the same as text; empty without a tokenizer.
    """

    equal: int
    original: list[int]
    prepared: list[int]
    margin: float | None = None
    noise: float | None = None
    original_text: str = ""
    prepared_text: str = ""


class GenaiCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check with its figures.

    Attributes:
        cache: largest difference between the candidate's own logits of the steps, and of the same tokens given at once:
            what its cache does to it. ``None`` where it was not measured.
    """

    verdict: Verdict
    logits: LogitFigures | None = None
    perplexity: Perplexity | None = None
    greedy: GreedyText | None = None
    cache: float | None = None


class GenaiProof(msgspec.Struct, frozen=True):
    """A prepared folder of a language model against its original.

    Attributes:
        original, prepared: the folders.
        device: on which the prepared one is to be proved: ``cpu`` or ``dml``.
        prompts: lengths of the prompts, in tokens.
        steps: tokens that were generated behind each.
        inputs: ``given`` by the user, ``seeded`` (made, which proves less).
    """

    original: str
    prepared: str
    device: SessionDevice
    prompts: list[int]
    steps: int
    inputs: Literal["given", "seeded"]
    checks: list[GenaiCheck]

    @property
    def verdicts(self) -> list[Verdict]:
        """Those of all checks, for the record of a run."""
        return [check.verdict for check in self.checks]

    @property
    def outcome(self) -> Outcome:
        """Of the checks that decide, the worst; ``not-run`` where none does."""
        found = {verdict.outcome for verdict in self.verdicts if verdict.decides}
        order: tuple[Outcome, ...] = ("failed", "not-run", "not-proven", "passed")
        return next((one for one in order if one in found), "not-run")

    @property
    def reason(self) -> str:
        """Why it did not pass; empty where it did."""
        outcome = self.outcome
        if outcome == "passed":
            return ""
        told = [f"{v.check}: {v.reason}" for v in self.verdicts if v.decides and v.outcome == outcome]
        return "; ".join(told) or "nothing was checked"

    @property
    def exit_code(self) -> int:
        """What the command line returns: 0 passed, 1 failed, 3 not run or not proven."""
        return {"passed": 0, "failed": 1, "not-proven": 3, "not-run": 3}[self.outcome]
