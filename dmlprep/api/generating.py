"""Language models: folders for onnxruntime-genai held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from dmlprep.options import Adapter, AdapterKeywords
from dmlprep.record.aliases import Progress, SessionDevice

if TYPE_CHECKING:
    from dmlprep.record.generation import GenaiProof

__all__ = ["genai_compare"]


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
        original: a folder with a genai_config.json; its decoder runs on the CPU.
        prepared: what came of it.
        prompts: texts for the folder's tokenizer, or token ids; without any, one is made from a seed.
        text: a file of text, UTF-8, for the perplexity.
        text_tokens: how much of it is used.
        steps: tokens behind each prompt, given one by one with the cache.
        device: where the prepared folder is to be proved; with ``dml`` it runs on the CPU as well, for information.
        where: ``device_id``, ``adapter`` or ``gpu``, as in ``Adapter``.
        tolerance: ``auto``, ``fp32``, ``fp16``, ``int8`` or ``int4`` (docs/language-models.md).
        time_limit: seconds for one load or run.
        genai: whether onnxruntime-genai writes with both folders too, where it is installed.
        progress: is told the share done (0 to 1) and what is done.

    Returns:
        a verdict for each check with its figures; ``outcome``, ``reason`` and ``exit_code`` sum them up.

    Raises:
        InputError: a folder, a model or the text cannot be read.
        UsageError: a prompt, an adapter or the tolerance is none.
        ModelRefused: dmlprep cannot read a decoder.
    """
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.genai import open_folder
    from dmlprep.genai.proof import ProofRequest, prove

    return prove(
        open_folder(Path(original)),
        open_folder(Path(prepared)),
        ProofRequest(
            prompts=tuple(prompts),
            text=None if text is None else Path(text),
            text_tokens=text_tokens,
            steps=steps,
            device=device,
            tolerance=tolerance,
            session=Adapter(**where).resolve(device, time_limit=time_limit),
            genai=genai,
            progress=progress,
        ),
    )
