"""The request for the proof of a language model, and its tokens: the user's, or seeded ones; and texts of tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from dmlprep.core.errors import InputError, UsageError
from dmlprep.genai.folder import GenaiFolder
from dmlprep.genai.proof.decoder import fitting_tokens
from dmlprep.genai.proof.embedding import special_tokens
from dmlprep.graph.model.budget import Budget
from dmlprep.parity.feeds.sources.text import whole_text
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.runtime import SessionOptions
from dmlprep.runtime.tools.tokenizers import detokenize, tokenize

MOST_STEPS = 1024
MOST_PROMPT = 4096
"""Largest number of tokens in a prompt."""


@dataclass(frozen=True)
class ProofRequest:
    """The settings of a proof.

    Attributes:
        prompts: token ids of each prompt, or texts for the folder's tokenizer; if empty, one prompt of ids from a seed.
        text: a file with text (UTF-8) for the perplexity; ``None``: no perplexity.
        text_tokens: largest number of its tokens that are used.
        steps: number of tokens that are generated after each prompt.
        device: the device for the prepared folder; with ``dml`` it runs on the CPU as well, for information.
        tolerance: ``auto``, or a name of ``bounds.BOUNDS``.
        session: options of the sessions: adapter, GPU and limits.
        genai: True to run both folders in onnxruntime-genai too, if it is installed and they have only a decoder.
        progress: called with the share done (0 to 1) and a text about the current work.

    Raises:
        UsageError: ``steps`` is not from 1 to 1024, or ``text_tokens`` not from 2 to 2**20.
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
            raise UsageError(f"cannot use {self.steps} steps", where="--steps", fix=f"use 1 to {MOST_STEPS} steps")
        if not 2 <= self.text_tokens <= 1 << 20:
            raise UsageError(
                f"cannot use {self.text_tokens} tokens of text", where="--text-tokens", fix="use 2 to 1048576 tokens"
            )


_TOKENIZER = "tokenizer.json"

_SEEDED_LENGTH = 12
"""Number of tokens in a seeded prompt."""

_WINDOW = 256
"""Largest number of tokens of a text in one run of a model."""

_LETTERS = 16
"""Number of characters that are tokenized for each token of a text that is used; an English token has about four."""


@dataclass(frozen=True)
class Tokens:
    """The tokens that both models get.

    Attributes:
        prompts: token ids of each prompt.
        windows: token ids of the text for the perplexity, in pieces that run one by one; empty without a text.
        inputs: whether the prompts are ``given`` by the user or ``seeded``.
    """

    prompts: list[list[int]]
    windows: list[list[int]]
    inputs: Literal["given", "seeded"]

    def longest(self, steps: int) -> int:
        """Return the number of tokens for which a cache needs room, with ``steps`` tokens after each prompt."""
        return max([len(prompt) + steps for prompt in self.prompts] + [len(window) for window in self.windows])


def read_tokens(folder: GenaiFolder, vocabulary: int, request: ProofRequest) -> Tokens:
    """Return the tokens of a request; texts are tokenized by the tokenizer of the folder.

    Args:
        vocabulary: number of tokens that the model knows.

    Raises:
        UsageError: a prompt is empty or too long, a token is beyond the vocabulary, or tokenizers is not installed.
        InputError: the text or the tokenizer cannot be read.
    """
    prompts = [_prompt(folder, prompt, vocabulary) for prompt in request.prompts]
    if not prompts:
        prompts = [_seeded_prompt(vocabulary, special_tokens(folder))]
    most = min(fitting_tokens(vocabulary), folder.config.number("model.context_length") or MOST_PROMPT)
    for prompt in prompts:
        if len(prompt) + request.steps > most:
            what = f"a prompt of {len(prompt)} tokens and {request.steps} steps; at most {most} tokens fit into the "
            what += "context and into the memory for logits"
            raise UsageError(what, where="--prompt", fix="use a shorter prompt or fewer steps")
    windows = [] if request.text is None else _windows(folder, request.text, vocabulary, request.text_tokens, most)
    return Tokens(prompts, windows, "given" if request.prompts else "seeded")


def _seeded_prompt(vocabulary: int, special: Collection[int]) -> list[int]:
    """Return a prompt of token ids from a seed, without ``special`` tokens, which stand for pictures or sound."""
    drawn: list[int] = np.random.default_rng(0).integers(0, vocabulary, _SEEDED_LENGTH).tolist()
    plain = next((token for token in range(vocabulary) if token not in special), 0)
    return [plain if token in special else token for token in drawn]


def _prompt(folder: GenaiFolder, prompt: Sequence[int] | str, vocabulary: int) -> list[int]:
    tokens = _encoded(folder, prompt) if isinstance(prompt, str) else [int(token) for token in prompt]
    if not 1 <= len(tokens) <= MOST_PROMPT:
        raise UsageError(f"a prompt of {len(tokens)} tokens", where="--prompt", fix=f"use 1 to {MOST_PROMPT} tokens")
    return _known(tokens, vocabulary, "--prompt")


def _known(tokens: list[int], vocabulary: int, where: str) -> list[int]:
    if beyond := [token for token in tokens if not 0 <= token < vocabulary]:
        what = f"token {beyond[0]} is beyond the vocabulary of {vocabulary}"
        raise UsageError(what, where=where, fix="use the tokenizer that belongs to the model")
    return tokens


def _encoded(folder: GenaiFolder, text: str) -> list[int]:
    ids: list[int] = tokenize(_tokenizer(folder), [text], None, Budget().most_bytes)["ids"][0].tolist()
    return ids


def _tokenizer(folder: GenaiFolder) -> Path:
    file = folder.path / _TOKENIZER
    if not file.is_file():
        what, fix = f"the folder has no {_TOKENIZER}", "pass token ids, or add the file"
        raise InputError(what, where=str(folder.path), fix=fix)
    return file


def _windows(folder: GenaiFolder, path: Path, vocabulary: int, count: int, most: int) -> list[list[int]]:
    tokens = _known(_encoded(folder, whole_text(path)[: count * _LETTERS]), vocabulary, str(path))[:count]
    if len(tokens) < 2:
        raise InputError("contains no text: at least two tokens are needed", where=str(path))
    size = max(2, min(_WINDOW, most))
    pieces = [tokens[start : start + size] for start in range(0, len(tokens), size)]
    return [piece for piece in pieces if len(piece) > 1]


def texts_of(folder: GenaiFolder, rows: Sequence[Sequence[int]]) -> list[str]:
    """Return rows of token ids as texts, empty ones without a readable tokenizer or without the package tokenizers."""
    try:
        return detokenize(_tokenizer(folder), rows)
    except UsageError:
        return ["" for _ in rows]
