"""The same folders through onnxruntime-genai itself, where it is installed: do both write the same tokens?"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping

from dmlprep.engines.onnxruntime_genai import generate, missing
from dmlprep.errors import CheckNotRun
from dmlprep.genai.document import JsonObject
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.proof.request import ProofRequest
from dmlprep.genai.proof.tokens import Tokens, texts_of
from dmlprep.record import Check, DeviceInfo, Verdict, finding
from dmlprep.record.aliases import SessionDevice
from dmlprep.record.generation import GenaiCheck, GreedyText, Outcome
from dmlprep.runtime import SessionFailure

__all__ = ["genai_check"]

_REACH_OUT = ("custom_ops_library", "enable_profiling")
"""Session options: a library that is loaded, and where ONNX Runtime writes the times of nodes."""

_COUNT = 32
"""Tokens that are generated."""


def _reaching_out(value: object) -> Iterator[str]:
    """Keys with which a config makes onnxruntime-genai load a library or write a file, and keys that it may read
    otherwise than we do."""
    if isinstance(value, JsonObject):
        yield from (f"{key!r} twice" for key in value.twice)
    if isinstance(value, Mapping):
        yield from (repr(key) for key in _REACH_OUT if value.get(key))
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _reaching_out(inner)


def genai_check(
    original: GenaiFolder, prepared: GenaiFolder, tokens: Tokens, request: ProofRequest
) -> list[GenaiCheck]:
    """The prepared folder against the original one, the original on the CPU.

    The prepared one runs on DirectML where that is asked for and this is Windows; elsewhere on the CPU, and then it is
    information: a folder for DirectML need not run there.
    """
    provider: SessionDevice = "dml" if request.device == "dml" and sys.platform == "win32" else "cpu"
    decides = provider == request.device
    began = time.perf_counter()
    check = Check("onnxruntime-genai", provider)
    prompt, limit = tokens.prompts[0], request.session.time_limit

    def told(outcome: Outcome, reason: str = "", device: DeviceInfo | None = None) -> Verdict:
        codes = {"failed": "DP704", "not-run": "DP885"}
        return Verdict(
            check,
            outcome,
            reason,
            device,
            feeds=1,
            seconds=round(time.perf_counter() - began, 3),
            findings=[finding(codes[outcome], f"{check}: {reason}")] if outcome in codes else [],
            decides=decides and outcome == "failed",  # what is not installed decides about no folder
            inputs="given" if tokens.given else "seeded",
        )

    if beside := [model.section for model in original.models if model.section != "decoder"]:
        return [GenaiCheck(told("not-run", f"it is run with folders of one decoder here, and this has {beside[0]}"))]
    for folder in (original, prepared):
        if (key := next(_reaching_out(folder.config.document), "")) != "":
            reason = f"{folder.config.path} has {key}, with which onnxruntime-genai runs other code or writes files"
            return [GenaiCheck(told("not-run", reason))]
    if reason := missing(provider):
        return [GenaiCheck(told("not-run", reason))]
    try:
        first, _ = generate(original.path, "cpu", prompt, _COUNT, time_limit=limit)
    except (SessionFailure, CheckNotRun) as error:
        return [GenaiCheck(told("not-run", f"the original does not run: {error}"))]
    try:
        own, version = generate(prepared.path, provider, prompt, _COUNT, time_limit=limit)
    except CheckNotRun as error:
        return [GenaiCheck(told("not-run", str(error)))]
    except SessionFailure as failed:
        return [
            GenaiCheck(told("not-run" if failed.kind in ("timeout", "memory", "limit") else "failed", failed.message))
        ]
    equal = next((i for i, pair in enumerate(zip(first, own, strict=True)) if pair[0] != pair[1]), _COUNT)
    device = DeviceInfo(provider, [f"onnxruntime-genai {version}"], provider)
    text = GreedyText(equal, first, own, None, None, *texts_of(prepared, [first, own]))
    if equal == _COUNT:
        return [GenaiCheck(told("passed", device=device), greedy=text)]
    reason = f"it runs; the texts part at token {equal + 1} of {_COUNT}"
    return [GenaiCheck(told("not-proven", reason, device=device), greedy=text)]
