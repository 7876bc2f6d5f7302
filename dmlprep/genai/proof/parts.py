"""Compare each model of a prepared folder, except its decoder, with its original on generated inputs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from dmlprep.core.errors import CheckNotRun, InputError, UsageError
from dmlprep.genai.folder import GenaiFolder, ModelFile
from dmlprep.genai.proof.embedding import embedding_feeds
from dmlprep.genai.proof.made_inputs import made_feeds
from dmlprep.genai.proof.tokens import ProofRequest
from dmlprep.graph.model import Model
from dmlprep.parity import Reference, compare, file_candidate, not_run
from dmlprep.record import Check, Verdict, finding
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.record.generation import GenaiCheck
from dmlprep.runtime import SessionOptions

_TOLERANCES = {"fp32": "fp32-{device}", "fp16": "fp16-{device}", "int8": "quantized", "int4": "few-bits"}
"""Tolerance for tensors (``metrics/tolerances.py``) by the precision that the user chose as tolerance of the proof."""


def part_checks(
    original: GenaiFolder, prepared: GenaiFolder, request: ProofRequest, on_cpu: SessionOptions
) -> Iterator[GenaiCheck]:
    """Compare each model that is not the decoder with its original; yield a check for each model and device.

    The devices are the CPU and, if the request is for DirectML, DirectML. The checks are named by section
    (``encoder on dml``). Sections that share a file get one check, named by the first. A check is ``not-run`` if no
    inputs can be generated. ``on_cpu`` has the options of sessions on the CPU.

    Raises:
        InputError: a model cannot be read.
        ModelRefused: dmlprep cannot preserve it.
    """
    others = {model.section: model.file for model in prepared.models}
    parts = [model for model in original.models if model.section != "decoder"]
    pairs: set[tuple[Path, Path]] = set()
    for number, part in enumerate(parts):
        pair = (part.file, others[part.section])
        if pair in pairs:  # several sections may name one file
            continue
        pairs.add(pair)

        def part_progress(share: float, text: str, number: int = number, part: ModelFile = part) -> None:
            request.progress(0.7 + 0.2 * (number + share) / len(parts), f"{part.section}: {text}")

        yield from _part(original, part, prepared.open(pair[1]), request, on_cpu, part_progress)


def unknown_checks(original: GenaiFolder, request: ProofRequest) -> Iterator[GenaiCheck]:
    """Yield a check ``not-run`` for each ONNX file that the config names in a section unknown to dmlprep."""
    known = {model.file for model in original.models}
    for place, name in _named(original.config.table("model"), "model"):
        if original.path / name not in known:
            reason = f"{place} names {name} in an unknown section, so dmlprep does not compare it"
            yield GenaiCheck(not_run(Check("part", request.device, part=place), reason, None, time.perf_counter()))


def _named(table: Mapping[str, object], place: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the name of every ONNX file that an object of the config names, at any depth."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _named(value, f"{place}.{key}")
        elif isinstance(value, str) and key.endswith("filename") and value.lower().endswith(".onnx"):
            yield f"{place}.{key}", value


def _part(
    folder: GenaiFolder,
    part: ModelFile,
    prepared: Model,
    request: ProofRequest,
    on_cpu: SessionOptions,
    progress: Progress,
) -> Iterator[GenaiCheck]:
    began = time.perf_counter()
    model = folder.open(part.file)
    devices: tuple[SessionDevice, ...] = ("cpu",) if request.device == "cpu" else ("cpu", "dml")
    limit = request.session.time_limit
    try:
        if part.section == "embedding":
            feeds = embedding_feeds(folder, part.file, model, prepared, on_cpu)
        else:
            feeds = made_feeds(folder, part.section, model, prepared)
        reference = Reference.of(model, feeds, time_limit=limit)
    except (CheckNotRun, UsageError, InputError) as error:
        for device in devices:
            check, reason = Check("part", device, part=part.section), f"no synthetic inputs for it: {error}"
            yield GenaiCheck(not_run(check, reason, None, began, decides=device == request.device))
        return
    with reference:
        for device in devices:
            began = time.perf_counter()
            check, decides = Check("part", device, part=part.section), device == request.device
            candidate = replace(file_candidate(prepared, device), check=check, decides=decides)
            tolerance = _TOLERANCES.get(request.tolerance, "auto").format(device=device)
            session = request.session if device == "dml" else on_cpu
            try:
                verdict = compare(reference, candidate, tolerance, limit, session, progress)
            except InputError as error:
                reason = f"it does not accept the original's inputs: {error}"
                wrong = finding("DP704", f"{check}: {reason}", remedy="compare models with the same inputs")
                seconds = round(time.perf_counter() - began, 3)
                verdict = Verdict(check, "failed", reason, seconds=seconds, findings=[wrong], decides=decides)
            yield GenaiCheck(msgspec.structs.replace(verdict, inputs="seeded"))
