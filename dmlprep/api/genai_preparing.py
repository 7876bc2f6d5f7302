"""Make a language model's folder ready for onnxruntime-genai on DirectML."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dmlprep.record.aliases import SessionDevice

if TYPE_CHECKING:
    from dmlprep.genai.preparing import Prover
    from dmlprep.pipeline import Observer
    from dmlprep.record import RunRecord

__all__ = ["genai_prepare"]


def genai_prepare(
    folder: str | Path,
    *,
    out: str | Path,
    precision: Literal["fp16", "int4"] = "fp16",
    recipe: str | Path = "",
    target: str = "",
    settings: Mapping[str, Any] | None = None,
    device_index: int | None = None,
    graph_capture: bool | None = None,
    fallback: Literal["", "cpu"] = "",
    builder_python: str = "",
    time_limit: float = 3600.0,
    proof: bool = True,
    device: SessionDevice = "cpu",
    steps: int = 16,
    text: str | Path | None = None,
    tolerance: str = "auto",
    vram: str | int | None = None,
    force: bool = False,
    observer: Observer | None = None,
    command_line: str = "",
) -> RunRecord:
    """Make a language model's folder ready for onnxruntime-genai on DirectML, and prove it (docs/language-models.md).

    Args:
        folder: one with a genai_config.json, or a Hugging Face folder (config.json and safetensors), which
            onnxruntime-genai's builder makes one of; never modified.
        out: folder of the result.
        precision: ``fp16``, or ``int4`` weights.
        recipe: a built-in recipe or a path in place of ``@llm-fp16`` and ``@llm-int4``.
        target, settings: as in ``plan``.
        device_index: the adapter on which genai opens the result, counted from 0 in the order in which Windows lists
            adapters by performance; written as ``device_index``.
        graph_capture: ``None``: on where every compute node of the decoder runs on DirectML.
        fallback: ``cpu``: ``out`` gets the folders ``dml`` and ``cpu``; the second is ``folder`` as it came, without
            a provider.
        builder_python: the Python of an environment with onnxruntime-genai, torch and transformers, for a Hugging Face
            folder; this one where it is empty.
        time_limit: seconds for the builder.
        proof: hold the result against ``folder``, step by step with a cache.
        device, steps, text, tolerance: of the proof: where the result runs, tokens behind each prompt, a file for the
            perplexity, how far it may be off.
        vram: memory that the device has (``4GB``, or bytes): a model that needs more is refused.
        force: replace what is in ``out``.
        observer: is told what the run does, such as a progress bar.
        command_line: what the user typed, for the record.

    Returns:
        the record; ``exit_code`` is 0 when the result is in place, 1 when a step refused, or the builder or the proof
        failed, 3 when the proof could not run. With 1 and 3 nothing was written.

    Raises:
        UsageError: the folder, the output or the recipe is wrong, or the builder's Python lacks a package.
    """
    from dmlprep.compiled import door

    door.start()
    from dmlprep.genai.dml_config import DmlOptions
    from dmlprep.genai.preparing import GenaiRequest, prepare_genai
    from dmlprep.memory import vram_bytes
    from dmlprep.pipeline import Observer

    return prepare_genai(
        GenaiRequest(
            source=Path(folder),
            out=Path(out),
            recipe=str(recipe),
            precision=precision,
            target=target,
            settings=settings or {},
            options=DmlOptions(device_index, graph_capture),
            fallback=fallback == "cpu",
            force=force,
            builder=builder_python,
            time_limit=time_limit,
            prover=_prover(device, steps, text, tolerance) if proof else None,
            vram=None if vram is None else vram_bytes(vram),
            observer=observer or Observer(),
            command_line=command_line,
        )
    )


def _prover(device: SessionDevice, steps: int, text: str | Path | None, tolerance: str) -> Prover:
    """What holds the result against what was given."""
    from dmlprep.genai.proof import ProofRequest, prove

    request = ProofRequest(text=None if text is None else Path(text), steps=steps, device=device, tolerance=tolerance)
    return partial(prove, request=request)
