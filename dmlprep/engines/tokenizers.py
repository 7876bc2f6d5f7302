"""tokenizers: text as token ids and back, by a ``tokenizer.json``. It is imported when text is read: it is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmlprep.engines.extras import extra
from dmlprep.errors import InputError
from dmlprep.files import check_plain

__all__ = ["detokenize", "tokenize"]


def tokenize(file: Path, texts: Sequence[str], length: int | None) -> dict[str, np.ndarray]:
    """Token ids of texts, as many for each.

    Args:
        file: the ``tokenizer.json``.
        length: how many tokens; shorter texts are padded and longer ones are cut. ``None``: as the longest has.

    Returns:
        ``ids``, ``mask`` (1 where no padding is) and ``types``, each int64 [texts, length].

    Raises:
        InputError: the file is no tokenizer.
        UsageError: tokenizers is not installed.
    """
    tokenizer = _opened(file)
    padding = tokenizer.padding or {}
    kept = {key: padding[key] for key in ("direction", "pad_id", "pad_type_id", "pad_token") if key in padding}
    kept.setdefault("pad_id", next((i for t in _PADDING if (i := tokenizer.token_to_id(t)) is not None), 0))
    tokenizer.enable_padding(**kept, length=length)
    if length is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(length)
    found = tokenizer.encode_batch(list(texts))
    columns = {"ids": "ids", "mask": "attention_mask", "types": "type_ids"}
    return {name: np.array([getattr(one, key) for one in found], np.int64) for name, key in columns.items()}


def detokenize(file: Path, rows: Sequence[Sequence[int]]) -> list[str]:
    """Texts of token ids, without special tokens.

    Args:
        file: the ``tokenizer.json``.

    Raises:
        InputError: the file is no tokenizer.
        UsageError: tokenizers is not installed.
    """
    found: list[str] = _opened(file).decode_batch([[int(token) for token in row] for row in rows])
    return found


def _opened(file: Path) -> Any:
    module = extra("tokenizers", "tokenizers", "reading text")
    try:
        check_plain(file, _MOST_BYTES)
        return module.Tokenizer.from_file(str(file))
    except Exception as error:  # it raises Exception itself
        fix = getattr(error, "fix", "pass the tokenizer.json that belongs to the model")
        raise InputError(f"cannot be read as a tokenizer: {error}", where=str(file), fix=fix) from error


_MOST_BYTES = 1 << 30
"""Of a tokenizer.json: those of large vocabularies have some ten million."""

_PADDING = ("[PAD]", "<pad>", "<|endoftext|>", "</s>")
"""How tokenizers call padding that say nothing of it; the last two end a text, and models are told by the mask."""
