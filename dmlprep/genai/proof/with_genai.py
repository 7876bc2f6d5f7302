"""Run both folders in onnxruntime-genai itself, if it is installed, and compare the generated tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import msgspec

from dmlprep.core.errors import CheckNotRun
from dmlprep.genai.document import JsonObject
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.proof.tokens import ProofRequest, Tokens, texts_of
from dmlprep.parity import Trial
from dmlprep.record import Check, DeviceInfo, Verdict, finding
from dmlprep.record.aliases import SessionDevice
from dmlprep.record.generation import GenaiCheck, GreedyText
from dmlprep.runtime import SessionFailure
from dmlprep.runtime.tools.onnxruntime_genai import generate, missing

_REACH_OUT = ("custom_ops_library", "enable_profiling")
"""Session options with which ONNX Runtime loads a library, or writes the times of nodes to a file."""

_COUNT = 32
"""Number of tokens that each folder generates."""


def _reaching_out(value: object) -> Iterator[str]:
    """Yield keys of a config that make onnxruntime-genai load a library or write a file.

    Duplicate keys count too, because onnxruntime-genai may read them differently.
    """
    if isinstance(value, JsonObject):
        yield from (f"the key {key!r} twice" for key in value.twice)
    if isinstance(value, Mapping):
        yield from (repr(key) for key in _REACH_OUT if value.get(key))
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _reaching_out(inner)


def genai_check(
    original: GenaiFolder, prepared: GenaiFolder, tokens: Tokens, request: ProofRequest
) -> list[GenaiCheck]:
    """Generate 32 tokens after the first prompt in onnxruntime-genai, compare both folders; return the check in a list.

    The original runs on the CPU. The prepared folder runs on DirectML if that is requested and this is Windows,
    otherwise on the CPU. The verdict decides only if it failed, on the requested device.
    """
    provider: SessionDevice = "dml" if request.device == "dml" and sys.platform == "win32" else "cpu"
    trial = Trial(Check("onnxruntime-genai", provider), provider, "", decides=provider == request.device)
    text = None
    if reason := _unfit(original, prepared) or missing(provider):
        verdict = _not_run(trial, reason)
    else:
        verdict, text = _both(original, prepared, tokens.prompts[0], trial, request.session.time_limit)
    decides = verdict.decides and verdict.outcome == "failed"  # a missing package does not decide about a folder
    return [GenaiCheck(msgspec.structs.replace(verdict, feeds=1, decides=decides, inputs=tokens.inputs), greedy=text)]


def _unfit(original: GenaiFolder, prepared: GenaiFolder) -> str:
    """Return the reason why dmlprep does not run these folders in onnxruntime-genai; empty if it does."""
    if more := [model.section for model in original.models if model.section != "decoder"]:
        return f"dmlprep runs it only on folders with one decoder, and this folder also has {more[0]}"
    for folder in (original, prepared):
        if (key := next(_reaching_out(folder.config.document), "")) != "":
            return f"{folder.config.path} has {key}, with which onnxruntime-genai may run other code or write files"
    return ""


def _both(
    original: GenaiFolder, prepared: GenaiFolder, prompt: list[int], trial: Trial, limit: float
) -> tuple[Verdict, GreedyText | None]:
    """Generate text with both folders; return the verdict on the tokens, and the texts.

    The texts are ``None`` if a folder did not run. Texts that differ give ``not-proven``.
    """
    try:
        first, _ = generate(original.path, "cpu", prompt, _COUNT, time_limit=limit)
    except (SessionFailure, CheckNotRun) as error:
        return _not_run(trial, f"the original does not run: {error}"), None
    try:
        own, version = generate(prepared.path, trial.device, prompt, _COUNT, time_limit=limit)
    except CheckNotRun as error:
        return _not_run(trial, str(error)), None
    except SessionFailure as failed:
        if failed.kind in ("timeout", "memory", "limit"):
            return _not_run(trial, failed.message), None
        remedy = "dmlprep genai check shows the problems of the folder"
        wrong = finding("DP704", f"{trial.check}: {failed.message}", remedy=remedy)
        return trial.verdict(1, failed.message, wrong), None
    trial.info = DeviceInfo(trial.device, [f"onnxruntime-genai {version}"], trial.device)
    equal = next((i for i, pair in enumerate(zip(first, own, strict=True)) if pair[0] != pair[1]), _COUNT)
    text = GreedyText(equal, first, own, None, None, *texts_of(prepared, [first, own]))
    verdict = trial.verdict()
    if equal < _COUNT:
        reason = f"it runs; the texts first differ at token {equal + 1} of {_COUNT}"
        verdict = msgspec.structs.replace(verdict, outcome="not-proven", reason=reason)
    return verdict, text


def _not_run(trial: Trial, reason: str) -> Verdict:
    return msgspec.structs.replace(trial.not_run(reason), findings=[finding("DP885", f"{trial.check}: {reason}")])
