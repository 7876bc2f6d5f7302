"""What the original does: its logits of the prompts and of the tokens that it takes next, kept for all candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmlprep.arrays import Array
from dmlprep.errors import UsageError
from dmlprep.genai.proof.decoder import MOST_BYTES, Decoder
from dmlprep.genai.proof.tokens import Tokens
from dmlprep.record.aliases import Progress

__all__ = ["Played", "play", "play_all"]


@dataclass(frozen=True)
class Played:
    """One prompt and what came of it.

    Attributes:
        rows: logits of the prompt, [tokens or 1, vocabulary].
        steps: logits behind each token that was fed, [steps, vocabulary].
        tokens: the most likely token behind the prompt, and behind each step: one more than there are steps.
    """

    prompt: list[int]
    rows: Array
    steps: Array
    tokens: list[int]


def play(decoder: Decoder, prompt: list[int], steps: int) -> Played:
    """The prompt, then greedily so many tokens.

    Raises:
        SessionFailure: the model does not run.
    """
    rows = decoder.prompt(prompt)
    tokens = [int(rows[-1].argmax())]
    found = []
    for _ in range(steps):
        found.append(decoder.step(tokens[-1]))
        tokens.append(int(found[-1].argmax()))
    return Played(prompt, rows, np.stack(found), tokens)


def play_all(decoder: Decoder, tokens: Tokens, steps: int, progress: Progress) -> list[Played]:
    """All prompts.

    Raises:
        UsageError: their logits would take too much memory.
        SessionFailure: the model does not run.
    """
    size = sum(len(prompt) + steps for prompt in tokens.prompts) * decoder.names.vocabulary * 4
    if size > 4 * MOST_BYTES:
        raise UsageError(
            f"the logits of these prompts would take {size >> 20} MiB", where="--prompt", fix="fewer or shorter prompts"
        )
    found = []
    for number, prompt in enumerate(tokens.prompts):
        progress(0.3 * number / len(tokens.prompts), "the original")
        found.append(play(decoder, prompt, steps))
    return found
