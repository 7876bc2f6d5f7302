"""Folders of language models in records: preparation, check, and the comparison with the original."""

from __future__ import annotations

from typing import Literal

import msgspec

from dmlprep.record.aliases import SessionDevice
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.verdicts import EXIT_CODES, Verdict

Outcome = Literal["passed", "failed", "not-proven", "not-run"]


class LogitFigures(msgspec.Struct, frozen=True):
    """Logits of a candidate against those of the original, over ``positions`` of equal tokens.

    Attributes:
        max_difference, mean_difference: absolute differences of all logits, less the mean difference at each position,
            which changes no probability.
        kl, worst_kl: mean and largest Kullback-Leibler divergence of the candidate's next-token distribution from the
            original's, in nats.
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
        """The prepared model's perplexity divided by the original's."""
        return self.prepared / self.original


class GreedyText(msgspec.Struct, frozen=True):
    """The tokens of both models when each takes the most likely one, and their text; empty without a tokenizer.

    Attributes:
        equal: number of equal tokens before the first that differs.
        margin, noise: the original's margin and the candidate's noise there; ``None`` if unknown, or all are equal.
    """

    equal: int
    original: list[int]
    prepared: list[int]
    margin: float | None = None
    noise: float | None = None
    original_text: str = ""
    prepared_text: str = ""


class GenaiCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check with its figures; ``None`` for those that were not measured.

    Attributes:
        cache: error of the candidate's cache: the largest difference between its logits of the steps, and its logits
            of the same tokens as one prompt.
    """

    verdict: Verdict
    logits: LogitFigures | None = None
    perplexity: Perplexity | None = None
    greedy: GreedyText | None = None
    cache: float | None = None


class GenaiProof(msgspec.Struct, frozen=True):
    """A prepared folder of a language model against its original.

    Attributes:
        prompts: lengths of the prompts, in tokens.
        steps: number of tokens that were generated after each.
        inputs: ``given`` by the user, or ``seeded``, which prove less.
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
        """The verdicts of all checks."""
        return [check.verdict for check in self.checks]

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of the checks that decide; ``not-run`` without any."""
        outcomes = {verdict.outcome for verdict in self.verdicts if verdict.decides}
        order: tuple[Outcome, ...] = ("failed", "not-run", "not-proven", "passed")
        return next((one for one in order if one in outcomes), "not-run")

    @property
    def reason(self) -> str:
        """The reasons of the checks with the worst outcome; empty if all passed."""
        outcome = self.outcome
        if outcome == "passed":
            return ""
        reasons = (f"{v.check}: {v.reason}" for v in self.verdicts if v.decides and v.outcome == outcome)
        return "; ".join(reasons) or "nothing was checked"

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        return EXIT_CODES[self.outcome]


class BuilderFacts(msgspec.Struct, frozen=True):
    """The builder of onnxruntime-genai that made the models; ``versions`` are those of Python and its packages."""

    precision: str
    versions: dict[str, str]


class PreparedModelFacts(msgspec.Struct, frozen=True):
    """One prepared model of a folder; ``sections`` of the config name it."""

    sections: list[str]
    opset: int
    placement: PlacementFacts | None = None


class GenaiFacts(msgspec.Struct):
    """The result of ``genai prepare``: ``models`` and ``copied`` files by their paths in the folder.

    Attributes:
        builder: ``None`` if the models existed.
        config: changes of the config.
        written: SHA-256 of each file of the result.
        fallback: name of the folder for the CPU; empty without one.
    """

    builder: BuilderFacts | None = None
    models: dict[str, PreparedModelFacts] = {}
    config: list[str] = []
    proof: GenaiProof | None = None
    copied: list[str] = []
    written: dict[str, str] = {}
    fallback: str = ""


class CheckedModelFacts(msgspec.Struct, frozen=True):
    """One model that ``genai check`` examined; ``placement`` is ``None`` if it failed."""

    file: str
    placement: PlacementFacts | None = None


class Needs(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory of the device for the decoder of a folder, in bytes.

    Attributes:
        weights: weights of all models of the folder.
        cache: keys and values at ``max_length`` and ``batch``; DirectML rounds each tensor up.
        cache_token: keys and values for one more token of one sequence, before rounding.
        max_length, batch: tokens of the longest sequence with its prompt; number of sequences, beams included.
        longest_fit, batch_fit: the longest sequence that fits at that batch, and the largest batch at that length.
    """

    weights: int
    cache: int
    cache_token: int
    logits_token: int
    max_length: int
    batch: int
    longest_fit: int | None = None
    batch_fit: int | None = None

    @property
    def total(self) -> int:
        """The bytes of weights and cache."""
        return self.weights + self.cache
