"""Run the prepared decoder on one device with the original's tokens, and return checks with figures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dmlprep.core.errors import CheckNotRun
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.proof.bounds import BOUNDS, LogitBounds
from dmlprep.genai.proof.decoder import Decoder, Played, decoder_names
from dmlprep.genai.proof.figures import (
    Differences,
    Losses,
    judge_greedy,
    judge_logits,
    judge_perplexity,
    margin_of,
    noise_of,
)
from dmlprep.genai.proof.tokens import ProofRequest, Tokens, texts_of
from dmlprep.parity import Trial
from dmlprep.parity.candidate import open_exact, open_session
from dmlprep.parity.optimization_levels import LOWER_LEVELS, Lowered, at_some_level
from dmlprep.portable.arrays import Array
from dmlprep.process.failure import failure
from dmlprep.record import Check, Verdict, finding
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.record.check import Measure
from dmlprep.record.generation import GenaiCheck, GreedyText
from dmlprep.runtime import SessionFailure, SessionOptions


@dataclass(frozen=True)
class Sides:
    """The results of the original, and the prepared decoder that is compared with it.

    Attributes:
        folder, file: the prepared folder, and the file of its decoder.
        original: the original's decoder, which runs the text again for each device.
        played: for each prompt the original's logits and tokens.
        tokens: the tokens for both models.
        bounds: the bounds for the logits.
        half: True if the prepared decoder's weights are not FP32: the CPU may need a lower optimisation level then.
        request: the settings of the proof.
    """

    folder: GenaiFolder
    file: Path
    original: Decoder
    played: Sequence[Played]
    tokens: Tokens
    bounds: LogitBounds
    half: bool
    request: ProofRequest


@dataclass
class _Results:
    """The results of one run of the prepared decoder.

    Attributes:
        prompts, steps, text: differences of the logits of prompts, of generated steps, and of the text.
        losses: negative log-likelihoods of the text's tokens.
        rows: logits of the prompt and of the steps, for each prompt.
        cache: largest difference between the logits of single steps and of the same tokens in one piece; ``None``:
            not measured.
        greedy: the texts that the decoder generates itself, for each prompt.
        whole_logits: False if a decoder returns only the logits of the last token.
    """

    prompts: Differences = field(default_factory=Differences)
    steps: Differences = field(default_factory=Differences)
    text: Differences = field(default_factory=Differences)
    losses: Losses = field(default_factory=Losses)
    rows: list[tuple[Array, Array]] = field(default_factory=list)
    cache: float | None = None
    greedy: list[GreedyText] = field(default_factory=list)
    whole_logits: bool = True


def checks_of(
    sides: Sides,
    device: SessionDevice,
    options: SessionOptions,
    beside: Sequence[tuple[Array, Array]] | None,
    progress: Progress,
) -> tuple[list[GenaiCheck], list[tuple[Array, Array]] | None]:
    """Run the prepared decoder on a device, and compare it with the original.

    Args:
        options: options of its session.
        beside: logits of the same decoder on the CPU: for each prompt those of the prompt and of the steps. ``None``:
            it has not run there.

    Returns:
        the checks, or one check with the reason why the decoder did not run; and its logits in the form of ``beside``,
            ``None`` if it did not run.
    """
    trial = Trial(Check("decoder", device), device, sides.bounds, decides=device == sides.request.device)
    lower = LOWER_LEVELS if sides.half and device == "cpu" else ()
    try:
        outcome, lowered = at_some_level(lambda asked: _run(sides, trial, asked, progress), options, lower)
    except CheckNotRun as error:
        ended = trial.not_run(str(error))
    except SessionFailure as failed:
        why = finding("DP704", f"the decoder does not run: {failed.message}")
        ended = trial.ended(failed, options, None) or trial.failed(why)
    else:
        return _checks(sides, _with_inputs(trial.verdict(), sides), outcome, lowered, beside), outcome.rows
    return [GenaiCheck(_with_inputs(ended, sides))], None


def _with_inputs(verdict: Verdict, sides: Sides) -> Verdict:
    return msgspec.structs.replace(verdict, feeds=len(sides.played), inputs=sides.tokens.inputs)


def _run(sides: Sides, trial: Trial, options: SessionOptions, progress: Progress) -> _Results:
    outcome, tokens = _Results(), sides.tokens
    with ExitStack() as stack:
        how = ""
        if trial.device == "cpu":
            session, how = stack.enter_context(open_exact(sides.folder.open(sides.file), options))
        else:
            session = stack.enter_context(closing(open_session(trial.device, sides.file, options)))
        trial.info = session.device.also(how)
        length = tokens.longest(sides.request.steps)
        decoder = Decoder(session, decoder_names(sides.folder, session), length, sides.original.context)
        for number, played in enumerate(sides.played):
            progress(number / len(sides.played), f"prompt {number + 1} on {trial.device}")
            _play(sides, decoder, played, outcome)
        for number, window in enumerate(tokens.windows):
            progress(number / len(tokens.windows), f"text on {trial.device}")
            _read(sides, decoder, window, outcome)
    return outcome


def _play(sides: Sides, decoder: Decoder, played: Played, results: _Results) -> None:
    """Run one prompt on the prepared decoder, and add the differences from the original to ``results``.

    It runs the prompt, then the original's tokens one by one, then all in one piece, then generates its own text.
    """
    rows = decoder.prompt(played.prompt)
    count = min(len(rows), len(played.rows))
    _same_vocabulary(decoder, rows, played.rows)
    results.prompts.add(played.rows[-count:], rows[-count:])
    steps = np.stack([decoder.step(token) for token in played.tokens[: sides.request.steps]])
    results.steps.add(played.steps, steps)
    results.rows.append((rows, steps))
    whole = decoder.prompt([*played.prompt, *played.tokens[: sides.request.steps]])
    if len(whole) > 1 and np.isfinite(steps).all() and np.isfinite(whole).all():
        apart = np.asarray(whole[len(played.prompt) :], np.float64) - steps
        results.cache = max(results.cache or 0.0, float(np.abs(apart).max()))
    results.greedy.append(_greedy(sides, decoder, played, [rows[-1], *steps]))


def _greedy(sides: Sides, decoder: Decoder, played: Played, rows: Sequence[Array]) -> GreedyText:
    """Let the prepared decoder generate its own text greedily, and return it with the original's.

    ``rows`` are its logits after the prompt and after each of the original's tokens. So only the tokens after the first
    different one need more runs.
    """
    first = [int(row.argmax()) for row in rows]
    equal = next((i for i, pair in enumerate(zip(first, played.tokens, strict=True)) if pair[0] != pair[1]), len(first))
    own = first[: equal + 1]
    margin = noise = None
    if equal < len(first):
        before = [played.rows[-1], *played.steps][equal]
        if np.isfinite(rows[equal]).all() and np.isfinite(before).all():
            margin, noise = margin_of(before), noise_of(before, rows[equal])
        if len(own) < len(first):
            own.append(int(decoder.prompt([*played.prompt, *own])[-1].argmax()))
        while len(own) < len(first):
            own.append(int(decoder.step(own[-1]).argmax()))
    return GreedyText(equal, played.tokens, own, margin, noise, *texts_of(sides.folder, [played.tokens, own]))


def _read(sides: Sides, decoder: Decoder, window: list[int], results: _Results) -> None:
    """Run a piece of the text in one run on both decoders, and add differences and losses to ``results``.

    If a decoder returns only the logits of the last token, nothing is added, and ``whole_logits`` becomes False.
    """
    original, rows = sides.original.prompt(window), decoder.prompt(window)
    _same_vocabulary(decoder, rows, original)
    if min(len(original), len(rows)) < len(window):
        results.whole_logits = False
        return
    results.text.add(original[:-1], rows[:-1])
    results.losses.add(window[1:], zip(original[:-1], rows[:-1], strict=True))


def _same_vocabulary(decoder: Decoder, rows: Array, original: Array) -> None:
    if rows.shape[1] != original.shape[1]:
        text = f"it returns logits of {rows.shape[1]} tokens, the original of {original.shape[1]}"
        raise failure("run", text, str(decoder.session.path))


def _checks(
    sides: Sides,
    verdict: Verdict,
    results: _Results,
    lowered: Lowered | None,
    beside: Sequence[tuple[Array, Array]] | None,
) -> list[GenaiCheck]:
    """Return the checks of a finished run.

    Args:
        verdict: a passed verdict with the device and the time of the run; only the first check keeps the time.
        lowered: the lower optimisation level at which the CPU ran; ``None`` for the default.
        beside: logits of the same decoder on the CPU; ``None``: no check compares with them.
    """
    later = msgspec.structs.replace(verdict, seconds=0.0)
    notes = [] if lowered is None else [finding("DP707", f"the CPU runs it at {lowered}")]
    prompt = _logits(_of(verdict, "prompt", findings=notes), results.prompts, sides.bounds)
    steps = _logits(_of(later, "steps", findings=notes), results.steps, sides.bounds)
    if results.cache is not None and steps.verdict.outcome == "failed" and prompt.verdict.outcome != "failed":
        steps = msgspec.structs.replace(steps, verdict=_behind_cache(steps.verdict, results.cache))
    checks = [prompt, msgspec.structs.replace(steps, cache=results.cache)]
    if beside is not None:
        checks.append(_same_weights(sides, later, results, beside))
    if sides.tokens.windows:
        checks.append(_text_check(sides, later, results))
    for number, text in enumerate(results.greedy, 1):
        greedy = _of(later, "greedy text", number=number, decides=False)
        checks.append(GenaiCheck(judge_greedy(greedy, text), greedy=text))
    return checks


def _of(verdict: Verdict, measure: Measure, number: int = 1, **fields: Any) -> Verdict:
    """Return a copy of the verdict for another check of the same run.

    ``measure`` and ``number`` name the check; ``fields`` are other fields of the verdict to replace.
    """
    check = msgspec.structs.replace(verdict.check, measure=measure, number=number)
    return msgspec.structs.replace(verdict, check=check, **fields)


def _logits(verdict: Verdict, differences: Differences, bounds: LogitBounds) -> GenaiCheck:
    figures = differences.figures()
    return GenaiCheck(judge_logits(verdict, differences, figures, bounds), figures)


def _behind_cache(verdict: Verdict, cache: float) -> Verdict:
    """Return the failed verdict on the steps with DP884: the prompt is right, so the cache is wrong.

    ``cache`` is the largest difference between the logits of single steps and of the same tokens in one piece.
    """
    text = f"{verdict.reason}; in one call, the logits of the same tokens differ by up to {cache:.2g}"
    findings = [*verdict.findings, finding("DP884", text, difference=cache)]
    return msgspec.structs.replace(verdict, reason=text, findings=findings)


def _same_weights(
    sides: Sides, verdict: Verdict, results: _Results, beside: Sequence[tuple[Array, Array]]
) -> GenaiCheck:
    """Return the check that compares the prepared decoder on the device with itself on the CPU.

    Its differences are errors of the device's kernels, without those of the weights. ``beside`` has the CPU's logits.
    """
    bounds = BOUNDS["fp16" if sides.half else "fp32"]
    differences = Differences()
    for (prompt, steps), (own_prompt, own_steps) in zip(beside, results.rows, strict=True):
        differences.add(prompt, own_prompt)
        differences.add(steps, own_steps)
    return _logits(_of(verdict, "same weights", tolerance=str(bounds)), differences, bounds)


def _text_check(sides: Sides, verdict: Verdict, results: _Results) -> GenaiCheck:
    verdict = _of(verdict, "text", inputs="given")
    if not results.whole_logits:
        why = "one of the decoders returns only the logits of the last token, not of each token of a text"
        note = finding("DP703", f"{verdict.check} did not run: {why}", remedy="omit --text")
        return GenaiCheck(msgspec.structs.replace(verdict, outcome="not-run", reason=why, findings=[note]))
    perplexity = None if results.text.broken else results.losses.perplexity()
    logits = _logits(verdict, results.text, sides.bounds)
    if logits.verdict.outcome in ("passed", "not-proven"):
        worse = judge_perplexity(verdict, perplexity, sides.bounds)
        if worse.outcome == "failed" or logits.verdict.outcome == "passed":
            logits = msgspec.structs.replace(logits, verdict=worse)
    return msgspec.structs.replace(logits, perplexity=perplexity)
