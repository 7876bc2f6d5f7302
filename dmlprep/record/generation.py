"""Folders of language models in records: preparation, check, and the comparison with the original."""

from __future__ import annotations

from typing import Literal

import msgspec

from dmlprep.record.aliases import SessionDevice
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.verdicts import EXIT_CODES, Verdict

Outcome = Literal["passed", "failed", "not-proven", "not-run"]


class LogitFigures(msgspec.Struct, frozen=True):
    """Differences between the logits of a candidate and of the original, over ``positions`` with equal tokens.

    Attributes:
        positions: number of positions whose logits are finite on both sides.
        max_difference, mean_difference: largest and mean absolute difference of the logits, after the mean difference
            of each position is subtracted, because it changes no probability.
        kl, worst_kl: mean and largest Kullback-Leibler divergence of the candidate's next-token distribution from the
            original's, in nats.
        information: mean divergence of the original's distribution from the uniform one, in nats: the scale for ``kl``.
        top1: share of positions at which the most likely token is the same, 0 to 1.
        top5: mean share of the five most likely tokens that both have, in any order.
        margin: median of the original's largest logit minus its second largest.
        noise: random error of a logit: root mean square of the differences, or the deviation among the likely tokens if
            that is larger.
        decided: number of positions at which the margin is clearly larger than the noise.
        top1_decided: share of the decided positions at which the most likely token is the same; 1 without any.
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
    """Perplexity of two models on a text of ``tokens`` tokens.

    Perplexity is e to the power of the mean negative log-likelihood of each token, given the tokens before it.
    """

    tokens: int
    original: float
    prepared: float

    @property
    def ratio(self) -> float:
        """The prepared model's perplexity divided by the original's."""
        return self.prepared / self.original


class GreedyText(msgspec.Struct, frozen=True):
    """The tokens that both models generate when each always takes its most likely token, and their text.

    Attributes:
        equal: number of equal tokens before the first that differs.
        original, prepared: the tokens of each model.
        margin, noise: at the first different token, the original's largest logit minus its second largest, and the
            random error of the prepared model's logits; ``None`` if unknown, or all tokens are equal.
        original_text, prepared_text: the tokens as text; empty without a tokenizer.
    """

    equal: int
    original: list[int]
    prepared: list[int]
    margin: float | None = None
    noise: float | None = None
    original_text: str = ""
    prepared_text: str = ""


class GenaiCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check of a language model, with its figures; ``None`` for those that were not measured.

    Attributes:
        cache: error of the candidate's key-value cache: the largest difference between its logits token by token, and
            its logits of the same tokens as one prompt.
    """

    verdict: Verdict
    logits: LogitFigures | None = None
    perplexity: Perplexity | None = None
    greedy: GreedyText | None = None
    cache: float | None = None


class GenaiProof(msgspec.Struct, frozen=True):
    """The comparison of a prepared folder of a language model with its original.

    Attributes:
        original, prepared: paths of the two folders.
        prompts: lengths of the prompts, in tokens.
        steps: number of tokens that were generated after each prompt.
        inputs: ``given`` by the user, or ``seeded`` (random), which prove less.
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
        """The worst outcome of the checks that decide; ``not-run`` if no check decides."""
        outcomes = {verdict.outcome for verdict in self.verdicts if verdict.decides}
        order: tuple[Outcome, ...] = ("failed", "not-run", "not-proven", "passed")
        return next((one for one in order if one in outcomes), "not-run")

    @property
    def reason(self) -> str:
        """The reasons of the deciding checks with the worst outcome; empty if ``outcome`` is ``passed``."""
        outcome = self.outcome
        if outcome == "passed":
            return ""
        reasons = (f"{v.check}: {v.reason}" for v in self.verdicts if v.decides and v.outcome == outcome)
        return "; ".join(reasons) or "nothing was checked"

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 0 passed, 1 failed, 3 not proven or not run."""
        return EXIT_CODES[self.outcome]


class BuilderFacts(msgspec.Struct, frozen=True):
    """The model builder of onnxruntime-genai that made the models, with ``versions`` of Python and its packages."""

    precision: str
    versions: dict[str, str]


class PreparedModelFacts(msgspec.Struct, frozen=True):
    """One prepared model of a folder; ``sections`` of ``genai_config.json`` name it.

    ``placement`` is ``None`` if it is unknown.
    """

    sections: list[str]
    opset: int
    placement: PlacementFacts | None = None


class GenaiFacts(msgspec.Struct):
    """The result of ``genai prepare``.

    Attributes:
        builder: the model builder that made the models; ``None`` if the models existed.
        models: the prepared models, by their paths in the folder.
        config: changes of ``genai_config.json``, in words.
        copied: other files that were copied, by their paths in the folder.
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
    """One model that ``genai check`` examined; ``placement`` is ``None`` if the check failed."""

    file: str
    placement: PlacementFacts | None = None


class Needs(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory that a device needs for the models of a language model's folder and the decoder's cache, in bytes.

    Attributes:
        weights: weights of all models of the folder.
        cache: keys and values at ``max_length`` and ``batch``; DirectML rounds each tensor up.
        cache_token: keys and values for one more token of one sequence, before rounding.
        logits_token: logits for one token.
        max_length, batch: tokens of the longest sequence with its prompt; number of sequences, beams included.
        longest_fit, batch_fit: the longest sequence that fits into the device's memory at that batch, and the largest
            batch at that length; 0 if none fits, ``None`` if the memory is unknown.
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
        """The size of weights and cache together, in bytes."""
        return self.weights + self.cache
