"""Convert text to token ids and back with tokenizers, an optional package, in a separate process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dmlprep.process.wire import read_tensor
from dmlprep.runtime.tools.reading import MEMORY, Reading

_READING = Reading(
    "tokenizers", "tokenizers", "reading text", "a tokenizer", "pass the tokenizer.json that belongs to the model"
)

_MOST_BYTES = 256 << 20
"""Largest tokenizer.json in bytes. The file of a large vocabulary has some 30 million."""

MEMORY_A_BYTE = 16
"""Additional memory in bytes for each byte of the file."""


def tokenize(file: Path, texts: Sequence[str], length: int | None, most: int) -> dict[str, np.ndarray]:
    """Return token ids of texts: ``ids``, ``mask`` (1: not padding) and ``types``, each int64 [texts, length].

    Args:
        file: a ``tokenizer.json``.
        length: the number of tokens for each text: shorter texts are padded, longer ones truncated. ``None``: the
            length of the longest text.
        most: limit for the ids in bytes, at 16 bytes for each id.

    Raises:
        InputError: the file is not a tokenizer, or exceeds its limit of time, memory or size.
        UsageError: tokenizers is not installed.
    """
    columns = _READING.ask(
        "tokenize",
        file,
        [str(length or 0), str(most)],
        lambda shape, out: read_tensor(out, "int64", (3, shape[0], shape[1]), limit=2 * most),
        payload=list(texts),
        limit=_MOST_BYTES,
        memory=_memory(file),
    )
    return dict(zip(("ids", "mask", "types"), columns, strict=True))


def detokenize(file: Path, rows: Sequence[Sequence[int]]) -> list[str]:
    """Return the text of each row of token ids, without special tokens, by the ``tokenizer.json`` in ``file``.

    Raises:
        InputError: the file is not a tokenizer, or exceeds its limit of time, memory or size.
        UsageError: tokenizers is not installed.
    """
    texts: list[str] = _READING.ask(
        "detokenize",
        file,
        [],
        lambda shape, out: read_tensor(out, "string", (shape[0],), limit=_MOST_BYTES).tolist(),
        payload=[[int(token) for token in row] for row in rows],
        limit=_MOST_BYTES,
        memory=_memory(file),
    )
    return texts


def _memory(file: Path) -> int:
    try:
        return MEMORY + MEMORY_A_BYTE * file.stat().st_size
    except OSError:
        return MEMORY  # the reader reports the error
