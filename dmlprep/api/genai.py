"""Folders of language models for onnxruntime-genai: check, prepare and compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from dmlprep.api.comparing import check_device
from dmlprep.api.preparing import start_worker
from dmlprep.core.errors import OutputError
from dmlprep.core.files import user_path
from dmlprep.pipeline.options import Adapter, AdapterKeywords
from dmlprep.record import RunRecord
from dmlprep.record.aliases import Progress, SessionDevice

if TYPE_CHECKING:
    from dmlprep.genai.checking import FolderCheck
    from dmlprep.pipeline.observer import Observer
    from dmlprep.record.generation import GenaiProof


def genai_check(folder: str | Path, *, target: str | None = None, vram: str | int | None = None) -> RunRecord:
    """Report the problems of a folder for onnxruntime-genai, and which nodes of its models DirectML runs.

    Nothing is edited, no model runs, and no weights are read.

    Args:
        folder: a folder with a genai_config.json.
        target: a name of ``dmlprep explain targets``; ``None`` as in ``check``.
        vram: memory of the device (``"4GB"``, or a number of bytes). A finding reports that the weights and the
            cache do not fit.

    Returns:
        the record. Findings about a model have its ``file`` among their facts. ``facts.models`` has the placements;
        ``facts.needs`` has the size in bytes of weights and cache, and with ``vram`` the longest sequence and the
        largest batch that fit. It is ``None`` if the size is unknown. ``exit_code`` is 1 if a finding is an error.

    Raises:
        InputError: the folder or its genai_config.json cannot be read.
        UsageError: the target is unknown, or ``vram`` is not an amount of memory.
    """
    return examine_folder(folder, target=target, vram=vram).combined()


def examine_folder(folder: str | Path, *, target: str | None = None, vram: str | int | None = None) -> FolderCheck:
    """Run ``genai_check`` with the same arguments, and return its record together with those of each model."""
    start_worker()
    from dmlprep.directml.targets import find_target
    from dmlprep.directml.vram import vram_bytes
    from dmlprep.genai.checking import check_folder
    from dmlprep.runtime.default_target import default_target

    name, reason = (target, "") if target else default_target()
    checked = check_folder(user_path(folder), find_target(name), vram=None if vram is None else vram_bytes(vram))
    checked.record.target_reason = reason
    return checked


def genai_prepare(
    folder: str | Path,
    *,
    out: str | Path,
    precision: Literal["fp16", "int4"] = "fp16",
    recipe: str | Path = "",
    target: str = "",
    settings: Mapping[str, object] | None = None,
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
    """Convert a language model's folder for onnxruntime-genai on DirectML, and prove it (docs/language-models.md).

    Args:
        folder: a folder with a genai_config.json; or a Hugging Face folder (config.json and safetensors), which
            onnxruntime-genai's model builder converts first. It is never modified.
        out, force: folder of the result, and whether to replace its files.
        precision: ``fp16``, or ``int4`` for INT4 weights.
        recipe: a built-in recipe or a path; empty: ``@llm-fp16``, or ``@llm-int4`` if dmlprep itself has to quantize.
        target, settings: as in ``plan``; an empty target is that of the recipe.
        device_index: the adapter for genai (``device_index`` in its config), counted from 0 in the order in which
            Windows lists adapters by performance. ``None`` leaves the config's own value.
        graph_capture: whether the config turns graph capture on; ``None``: if every compute node of the decoder runs
            on DirectML.
        fallback: ``cpu``: write two folders into ``out``, the result as ``dml``, and as ``cpu`` a copy of ``folder``
            that runs on the CPU.
        builder_python: for a Hugging Face folder, the Python program that has onnxruntime-genai, torch and
            transformers; empty: the Python that runs dmlprep.
        time_limit: limit in seconds for the model builder.
        proof: True to compare the result with ``folder``: its decoder token by token, its other models each alone.
        device, steps, text, tolerance: settings of the proof, as in ``genai_compare``.
        vram: memory of the device (``"4GB"``, or a number of bytes). A result whose weights and cache need more is
            refused.
        observer, command_line: as in ``prepare``.

    Returns:
        the record. ``exit_code`` is 0 if the result is in place; 1 if a model was refused, or the builder or the proof
        failed. It is 3 if the proof could not run or proved nothing. With 1 and 3 nothing is written.

    Raises:
        UsageError: the folder, the output or the recipe is wrong, or the builder's Python lacks a package.
    """
    start_worker()
    from dmlprep.directml.vram import vram_bytes
    from dmlprep.genai.dml_config import DmlOptions
    from dmlprep.genai.preparing import GenaiRequest, prepare_genai
    from dmlprep.genai.proof import ProofRequest, prove
    from dmlprep.pipeline.observer import Observer

    check_device(device)
    prompts = None if text is None else user_path(text)
    proof_request = ProofRequest(text=prompts, steps=steps, device=device, tolerance=tolerance)
    return prepare_genai(
        GenaiRequest(
            source=user_path(folder),
            out=user_path(out, OutputError),
            recipe=str(recipe),
            precision=precision,
            target=target,
            settings=settings or {},
            options=DmlOptions(device_index, graph_capture),
            fallback=fallback == "cpu",
            force=force,
            builder=builder_python,
            time_limit=time_limit,
            prover=partial(prove, request=proof_request) if proof else None,
            vram=None if vram is None else vram_bytes(vram),
            observer=observer or Observer(),
            command_line=command_line,
        )
    )


def genai_compare(
    original: str | Path,
    prepared: str | Path,
    *,
    prompts: Sequence[Sequence[int] | str] = (),
    text: str | Path | None = None,
    text_tokens: int = 512,
    steps: int = 16,
    device: SessionDevice = "cpu",
    tolerance: str = "auto",
    time_limit: float = 600.0,
    genai: bool = True,
    progress: Progress = lambda share, text: None,
    **where: Unpack[AdapterKeywords],
) -> GenaiProof:
    """Compare a prepared folder of a language model with its original, token by token.

    >>> found = dmlprep.genai_compare("llama", "llama-dml", steps=4, genai=False)
    >>> found.outcome, found.checks[0].logits.kl < 0.001
    ('passed', True)

    Args:
        original, prepared: folders with a genai_config.json. The models of the original run on the CPU.
        prompts: texts for the folder's tokenizer, or lists of token ids; empty: one prompt of token ids from a seed.
        text, text_tokens: a file of text (UTF-8) for the perplexity, and the number of its tokens to use.
        steps: number of tokens that the original generates after each prompt, one by one with its cache. The prepared
            model gets the same tokens.
        device: device for the prepared folder; with ``dml`` it runs on the CPU as well, for information.
        tolerance: ``auto``, ``fp32``, ``fp16``, ``int8`` or ``int4`` (docs/language-models.md).
        time_limit: limit in seconds for each load and each run.
        genai: True to generate text from both folders with onnxruntime-genai too, if it is installed.
        progress: called with the share done (0 to 1) and a text about the current work.
        where: the DirectML device, as the fields of ``Adapter``: ``device_id``, ``adapter`` or ``gpu``.

    Returns:
        a verdict for each check with its figures (``checks``); ``outcome``, ``reason`` and ``exit_code`` sum them up.

    Raises:
        InputError: a folder, a model or the text cannot be read.
        UsageError: a prompt, ``steps``, ``text_tokens``, the device, the adapter or the tolerance is not valid.
        CheckNotRun: no GPU matches ``gpu``.
        ModelRefused, ToolFailed: a model is not supported, exceeds a safety limit, or crashes onnx.
    """
    start_worker()
    from dmlprep.genai import open_folder
    from dmlprep.genai.proof import ProofRequest, prove

    check_device(device)
    return prove(
        open_folder(user_path(original)),
        open_folder(user_path(prepared)),
        ProofRequest(
            prompts=tuple(prompts),
            text=None if text is None else user_path(text),
            text_tokens=text_tokens,
            steps=steps,
            device=device,
            tolerance=tolerance,
            session=Adapter(**where).resolve(device, time_limit=time_limit),
            genai=genai,
            progress=progress,
        ),
    )
