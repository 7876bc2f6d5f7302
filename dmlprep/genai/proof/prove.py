"""Prove a prepared folder: run original and result on the same tokens, and compare the logits and other models."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from dmlprep.core.errors import CheckNotRun
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.proof.bounds import choose_bounds, precision_beside, weights_of
from dmlprep.genai.proof.candidate import Sides, checks_of
from dmlprep.genai.proof.decoder import Decoder, Played, decoder_file, decoder_names, play_all
from dmlprep.genai.proof.embedding import open_context
from dmlprep.genai.proof.model_links import type_checks
from dmlprep.genai.proof.parts import part_checks, unknown_checks
from dmlprep.genai.proof.tokens import ProofRequest, Tokens, read_tokens
from dmlprep.genai.proof.with_genai import genai_check
from dmlprep.parity import not_run
from dmlprep.parity.candidate import open_exact
from dmlprep.record import Check
from dmlprep.record.aliases import SessionDevice
from dmlprep.record.generation import GenaiCheck, GenaiProof
from dmlprep.runtime import SessionFailure, SessionOptions


def prove(original: GenaiFolder, prepared: GenaiFolder, request: ProofRequest) -> GenaiProof:
    """Prove a prepared folder against its original.

    The original's decoder runs on the CPU: it reads the prompts, then generates ``request.steps`` tokens greedily. The
    prepared decoder gets the same tokens, in the same steps, on the CPU and, if requested, on DirectML. If a decoder
    has inputs from other models, both decoders get them from the original's models. Each other model is compared with
    its original on synthetic inputs.

    Returns:
        the proof: a verdict for each check, with its figures. If DirectML is requested, checks on the CPU are
        information only.

    Raises:
        InputError: a file of the folders, or the text, cannot be read.
        UsageError: a prompt or the tolerance is invalid.
        ModelRefused: dmlprep cannot read a model.
    """
    began = time.perf_counter()
    choose_bounds(request.tolerance, "fp32")  # a wrong name fails before anything runs
    if (apart := _apart(original, prepared)) is not None:
        return _proof(original, prepared, request, None, [_not_run(apart, request, began)])
    tokens, checks = _decoder(original, prepared, request, began)
    checks += type_checks(original, prepared)
    checks += part_checks(original, prepared, request, _on_cpu(request.session, original, prepared))
    checks += unknown_checks(original, request)
    if request.genai and tokens is not None:
        request.progress(0.9, "onnxruntime-genai")
        checks += genai_check(original, prepared, tokens, request)
    return _proof(original, prepared, request, tokens, checks)


def _apart(original: GenaiFolder, prepared: GenaiFolder) -> str | None:
    """Return the reason why the folders cannot be compared: different models, or none; ``None`` if they can."""
    names = [[model.section for model in folder.models] for folder in (original, prepared)]
    if alone := sorted(set(names[0]) ^ set(names[1])):
        who = "the original" if alone[0] in names[0] else "the prepared folder"
        return f"only {who} has a model for {alone[0]}"
    return None if names[0] else "the folders have no models"


def _decoder(
    original: GenaiFolder, prepared: GenaiFolder, request: ProofRequest, began: float
) -> tuple[Tokens | None, list[GenaiCheck]]:
    """Run both decoders; return the tokens, and the checks of the decoder.

    The tokens are ``None`` if the original did not run; a check ``not-run`` then has the reason.
    """
    try:
        file, other = decoder_file(original), decoder_file(prepared)
    except CheckNotRun as error:
        return None, [_not_run(str(error), request, began)]
    weights = weights_of(prepared.open(other))
    bounds = choose_bounds(request.tolerance, precision_beside(weights, weights_of(original.open(file))))
    with ExitStack() as opened:  # candidates read the text next to the original's session
        try:
            decoder, tokens, played = _played(original, prepared, file, request, opened)
        except (SessionFailure, CheckNotRun) as error:
            text = str(error)
            if isinstance(error, SessionFailure):
                text = f"the original does not run on the CPU, so it cannot be compared: {error}"
            return None, [_not_run(text, request, began)]
        return tokens, _all_checks(Sides(prepared, other, decoder, played, tokens, bounds, weights != "fp32", request))


def _played(
    original: GenaiFolder, prepared: GenaiFolder, file: Path, request: ProofRequest, opened: ExitStack
) -> tuple[Decoder, Tokens, list[Played]]:
    """Open the original's decoder from ``file``, and run the prompts on it.

    Args:
        opened: the stack that later closes the sessions.

    Returns:
        the decoder; the tokens of the request; and for each prompt the logits and the generated tokens.

    Raises:
        SessionFailure: the decoder does not run.
        CheckNotRun: the decoder is of an unknown kind, or its inputs from other models are not available.
    """
    options = _on_cpu(request.session, original, prepared)
    session, _ = opened.enter_context(open_exact(original.open(file), options))
    names = decoder_names(original, session)
    by = prepared if (prepared.path / "tokenizer.json").is_file() else original
    tokens = read_tokens(by, names.vocabulary, request)
    context = opened.enter_context(closing(open_context(original, session, options)))
    decoder = Decoder(session, names, tokens.longest(request.steps), context)
    return decoder, tokens, play_all(decoder, tokens.prompts, request.steps, request.progress)


def _all_checks(sides: Sides) -> list[GenaiCheck]:
    request, folder = sides.request, sides.folder
    devices: tuple[SessionDevice, ...] = ("cpu",) if request.device == "cpu" else ("cpu", "dml")
    whole = 0.6 if len(folder.models) == 1 else 0.4  # share of the time: the other models come after it
    all_checks: list[GenaiCheck] = []
    beside = None
    for number, device in enumerate(devices):
        start, span = 0.3 + whole * number / len(devices), whole / len(devices)

        def device_progress(share: float, text: str, start: float = start, span: float = span) -> None:
            request.progress(start + span * share, text)

        options = request.session if device == "dml" else _on_cpu(request.session, folder)
        checks, beside = checks_of(sides, device, options, beside, device_progress)
        all_checks += checks
    return all_checks


def _on_cpu(session: SessionOptions, *folders: GenaiFolder) -> SessionOptions:
    """Return the options of a session for the CPU: without the choice of a device, with limits by the folders' size."""
    plain = replace(session, device_id=None, performance_preference="default", gpu="", open_by="provider")
    return replace(plain, model_bytes=sum(folder.file_bytes() for folder in folders))


def _not_run(reason: str, request: ProofRequest, began: float) -> GenaiCheck:
    return GenaiCheck(not_run(Check("decoder", request.device), reason, None, began))


def _proof(
    original: GenaiFolder, prepared: GenaiFolder, request: ProofRequest, tokens: Tokens | None, checks: list[GenaiCheck]
) -> GenaiProof:
    return GenaiProof(
        original=str(original.path),
        prepared=str(prepared.path),
        device=request.device,
        prompts=[len(prompt) for prompt in tokens.prompts] if tokens is not None else [],
        steps=request.steps,
        inputs=tokens.inputs if tokens is not None else "seeded",
        checks=checks,
    )
