"""The prepared decoder on one device, on the tokens that the original took: checks with figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dmlprep.arrays import Array
from dmlprep.errors import CheckNotRun
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.proof.bounds import BOUNDS, LogitBounds
from dmlprep.genai.proof.decoder import Decoder
from dmlprep.genai.proof.figures import Differences, Losses, margin_of, noise_of
from dmlprep.genai.proof.judging import Judged, judge_greedy, judge_logits, judge_perplexity
from dmlprep.genai.proof.naming import decoder_names
from dmlprep.genai.proof.reference import Played
from dmlprep.genai.proof.tokens import Tokens, texts_of
from dmlprep.parity.candidate import open_session, software_device
from dmlprep.parity.optimization_levels import LOWER_LEVELS, Lowered, at_some_level
from dmlprep.processes.failure import failure
from dmlprep.record import Check, DeviceInfo, Finding, Verdict, finding
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.record.check import Measure
from dmlprep.record.generation import GenaiCheck, GreedyText
from dmlprep.runtime import SessionFailure, SessionOptions

__all__ = ["Candidate", "checks_of"]


@dataclass(frozen=True)
class Candidate:
    """What is proved, and against what.

    Attributes:
        file: its decoder.
        original: the original's decoder, for the text, which it reads again beside each candidate.
        decides: whether its checks decide about the folder.
        half: whether it holds FP16, which the CPU may need a lower optimisation level for.
        beside: what the same decoder gave on the CPU, of each prompt the rows of the prompt and of the steps; ``None``
            where it did not run there.
    """

    folder: GenaiFolder
    file: Path
    device: SessionDevice
    original: Decoder
    played: Sequence[Played]
    tokens: Tokens
    steps: int
    bounds: LogitBounds
    options: SessionOptions
    decides: bool
    half: bool
    beside: Sequence[tuple[Array, Array]] | None
    progress: Progress


@dataclass
class _Found:
    """What a whole run gave; nothing of one that broke off stays."""

    device: DeviceInfo | None = None
    prompts: Differences = field(default_factory=Differences)
    steps: Differences = field(default_factory=Differences)
    text: Differences = field(default_factory=Differences)
    losses: Losses = field(default_factory=Losses)
    rows: list[tuple[Array, Array]] = field(default_factory=list)
    cache: float | None = None
    greedy: list[GreedyText] = field(default_factory=list)
    whole_logits: bool = True


def checks_of(candidate: Candidate) -> tuple[list[GenaiCheck], list[tuple[Array, Array]] | None]:
    """Run the candidate.

    Returns:
        a verdict for each check, or one that says why it did not run; and its logits of the prompts and of the steps,
        where it ran.
    """
    began = time.perf_counter()
    seen: list[DeviceInfo] = []
    try:
        found, lowered = at_some_level(
            lambda options: _run(candidate, options, seen),
            candidate.options,
            LOWER_LEVELS if candidate.half and candidate.device == "cpu" else (),
        )
    except CheckNotRun as error:
        return [_unsaid(candidate, Judged("not-run", str(error)), None, began)], None
    except SessionFailure as failed:
        device = seen[-1] if seen else None
        return [_unsaid(candidate, _broken(candidate, failed, seen), device, began)], None
    return _told(candidate, found, lowered, time.perf_counter() - began), found.rows


def _broken(candidate: Candidate, failed: SessionFailure, seen: Sequence[DeviceInfo]) -> Judged:
    """A run that ended early: out of time on a software device, and out of memory, say nothing about the model."""
    slow = failed.kind == "timeout" and software_device(candidate.device, seen[-1] if seen else None)
    if slow or failed.kind == "memory":
        what = "out of time" if slow else "out of memory"
        return Judged("not-run", f"{what}: {failed.message}; {failed.next_step}")
    text = f"the decoder does not run: {failed.message}"
    return Judged("failed", text, (finding("DP704", text),))


def _unsaid(candidate: Candidate, judged: Judged, device: DeviceInfo | None, began: float) -> GenaiCheck:
    return GenaiCheck(_verdict(candidate, "decoder", judged, device, time.perf_counter() - began))


def _run(candidate: Candidate, options: SessionOptions, seen: list[DeviceInfo]) -> _Found:
    found = _Found()
    with closing(open_session(candidate.device, candidate.file, options)) as session:
        seen.append(session.device)
        found.device = session.device
        length = candidate.tokens.longest(candidate.steps)
        decoder = Decoder(session, decoder_names(candidate.folder, session), length, candidate.original.context)
        for number, played in enumerate(candidate.played):
            candidate.progress(number / len(candidate.played), f"prompt {number + 1} on {candidate.device}")
            _play(candidate, decoder, played, found)
        for number, window in enumerate(candidate.tokens.windows):
            candidate.progress(number / len(candidate.tokens.windows), f"text on {candidate.device}")
            _read(candidate, decoder, window, found)
    return found


def _play(candidate: Candidate, decoder: Decoder, played: Played, found: _Found) -> None:
    """A prompt, the original's tokens one by one, the same at once, and what this model writes by itself."""
    rows = decoder.prompt(played.prompt)
    count = min(len(rows), len(played.rows))
    _same_vocabulary(decoder, rows, played.rows)
    found.prompts.add(played.rows[-count:], rows[-count:])
    steps = np.stack([decoder.step(token) for token in played.tokens[: candidate.steps]])
    found.steps.add(played.steps, steps)
    found.rows.append((rows, steps))
    whole = decoder.prompt([*played.prompt, *played.tokens[: candidate.steps]])
    if len(whole) > 1 and np.isfinite(steps).all() and np.isfinite(whole).all():
        apart = np.asarray(whole[len(played.prompt) :], np.float64) - steps
        found.cache = max(found.cache or 0.0, float(np.abs(apart).max()))
    found.greedy.append(_greedy(candidate, decoder, played, [rows[-1], *steps]))


def _greedy(candidate: Candidate, decoder: Decoder, played: Played, rows: Sequence[Array]) -> GreedyText:
    """The candidate's own text: as long as its first tokens are the original's, the rows are known already."""
    first = [int(row.argmax()) for row in rows]
    equal = next((i for i, pair in enumerate(zip(first, played.tokens, strict=True)) if pair[0] != pair[1]), len(first))
    own = first[: equal + 1]
    margin = noise = None
    if equal < len(first):
        before = [played.rows[-1], *played.steps][equal]
        if np.isfinite(rows[equal]).all() and np.isfinite(before).all():
            margin, noise = margin_of(before), noise_of(before, rows[equal])
        if len(own) < len(first):
            last = decoder.prompt([*played.prompt, *own])[-1]
            own.append(int(last.argmax()))
            while len(own) < len(first):
                own.append(int(decoder.step(own[-1]).argmax()))
    texts = texts_of(candidate.folder, [played.tokens, own])
    return GreedyText(equal, played.tokens, own, margin, noise, *texts)


def _read(candidate: Candidate, decoder: Decoder, window: list[int], found: _Found) -> None:
    """A piece of the text at once, on both sides."""
    original, rows = candidate.original.prompt(window), decoder.prompt(window)
    _same_vocabulary(decoder, rows, original)
    if min(len(original), len(rows)) < len(window):
        found.whole_logits = False
        return
    found.text.add(original[:-1], rows[:-1])
    found.losses.add(window[1:], zip(original[:-1], rows[:-1], strict=True))


def _same_vocabulary(decoder: Decoder, rows: Array, original: Array) -> None:
    if rows.shape[1] != original.shape[1]:
        text = f"it gives logits of {rows.shape[1]} tokens, the original of {original.shape[1]}"
        raise failure("run", text, str(decoder.session.path))


def _told(candidate: Candidate, found: _Found, lowered: Lowered | None, seconds: float) -> list[GenaiCheck]:
    made: list[GenaiCheck] = []
    device = found.device
    logits: tuple[tuple[Measure, Differences], ...] = (("prompt", found.prompts), ("steps", found.steps))
    for what, differences in logits:
        figures = differences.figures()
        judged = judge_logits(differences, figures, candidate.bounds)
        cache = found.cache if what == "steps" else None
        if cache is not None and judged.outcome == "failed" and not (made and made[0].verdict.outcome == "failed"):
            judged = _behind_cache(judged, cache)
        if lowered is not None:
            note = finding("DP707", f"the CPU runs it at {lowered}")
            judged = replace(judged, findings=(*judged.findings, note))
        took = seconds if what == "prompt" else 0.0
        made.append(GenaiCheck(_verdict(candidate, what, judged, device, took), figures, cache=cache))
    if candidate.beside is not None:
        made.append(_same_weights(candidate, found, candidate.beside))
    if candidate.tokens.windows:
        made.append(_text_check(candidate, found))
    for number, text in enumerate(found.greedy, 1):
        verdict = _verdict(candidate, "greedy text", judge_greedy(text), device, 0.0, decides=False, number=number)
        made.append(GenaiCheck(verdict, greedy=text))
    return made


def _behind_cache(judged: Judged, cache: float) -> Judged:
    """A prompt that is right and steps that are wrong: the cache, where the same tokens at once give other logits."""
    text = f"{judged.reason}; given at once, the same tokens give logits that are up to {cache:.2g} apart from these"
    return replace(judged, reason=text, findings=(*judged.findings, finding("DP884", text, difference=cache)))


def _same_weights(candidate: Candidate, found: _Found, beside: Sequence[tuple[Array, Array]]) -> GenaiCheck:
    """The device against the CPU on the very same file: what the kernels do, without what the weights lost."""
    bounds = BOUNDS["fp16" if candidate.half else "fp32"]
    differences = Differences()
    for pair, own in zip(beside, found.rows, strict=True):
        for before, now in zip(pair, own, strict=True):
            differences.add(before, now)
    figures = differences.figures()
    judged = judge_logits(differences, figures, bounds)
    verdict = _verdict(replace(candidate, bounds=bounds), "same weights", judged, found.device, 0.0)
    return GenaiCheck(verdict, figures)


def _text_check(candidate: Candidate, found: _Found) -> GenaiCheck:
    figures, perplexity = found.text.figures(), None
    if not found.whole_logits:
        judged = Judged("not-run", "the decoder gives the logits of the last token alone, not of each token of a text")
    else:
        judged = judge_logits(found.text, figures, candidate.bounds)
        perplexity = found.losses.perplexity() if not found.text.broken else None
        if judged.outcome in ("passed", "not-proven"):
            worse = judge_perplexity(perplexity, candidate.bounds)
            judged = worse if worse.outcome == "failed" or judged.outcome == "passed" else judged
    verdict = _verdict(candidate, "text", judged, found.device, 0.0, given=True)
    return GenaiCheck(verdict, figures if found.whole_logits else None, perplexity)


def _verdict(
    candidate: Candidate,
    what: Measure,
    judged: Judged,
    device: DeviceInfo | None,
    seconds: float,
    *,
    decides: bool | None = None,
    given: bool | None = None,
    number: int = 1,
) -> Verdict:
    check = Check(what, candidate.device, number=number)
    findings: list[Finding] = list(judged.findings)
    if judged.outcome == "not-run":
        findings.append(finding("DP703", f"{check} did not run: {judged.reason}"))
    user = candidate.tokens.given if given is None else given
    return Verdict(
        check=check,
        outcome=judged.outcome,
        reason=judged.reason,
        device=device,
        tolerance=str(candidate.bounds),
        feeds=len(candidate.played),
        seconds=round(seconds, 3),
        findings=findings,
        decides=candidate.decides if decides is None else decides,
        inputs="given" if user else "seeded",
    )
