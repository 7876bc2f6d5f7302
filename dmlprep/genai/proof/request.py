"""What a proof of a language model is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmlprep.core.errors import UsageError
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.runtime import SessionOptions

MOST_STEPS = 1024
MOST_PROMPT = 4096
"""Tokens."""


@dataclass(frozen=True)
class ProofRequest:
    """What to prove, and where.

    Attributes:
        prompts: token ids of each prompt, or texts for the folder's tokenizer; without any, ids made from a seed.
        text: a file with text for the perplexity, UTF-8.
        text_tokens: how much of it is used, in tokens.
        steps: tokens generated behind each prompt.
        device: where the prepared folder is to be proved; ``dml`` runs it on the CPU as well, for information.
        tolerance: ``auto``, or a name of ``bounds.BOUNDS``.
        session: adapter, GPU and limits of the sessions.
        genai: whether onnxruntime-genai runs both folders, where it is installed.
    """

    prompts: Sequence[Sequence[int] | str] = ()
    text: Path | None = None
    text_tokens: int = 512
    steps: int = 16
    device: SessionDevice = "cpu"
    tolerance: str = "auto"
    session: SessionOptions = field(default_factory=SessionOptions)
    genai: bool = True
    progress: Progress = lambda share, text: None

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MOST_STEPS:
            raise UsageError(f"{self.steps} steps", where="--steps", fix=f"1 to {MOST_STEPS}")
        if not 2 <= self.text_tokens <= 1 << 20:
            raise UsageError(f"{self.text_tokens} tokens of text", where="--text-tokens", fix="2 to 1048576")
