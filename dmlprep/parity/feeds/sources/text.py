"""Convert text to a model's inputs: token ids by a tokenizer, and the mask, types and positions that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dmlprep.core.errors import InputError
from dmlprep.core.files import Unfit, read_text, unreadable
from dmlprep.parity.feeds.roles import role
from dmlprep.parity.feeds.sizes import Input
from dmlprep.portable.arrays import Array
from dmlprep.runtime.tools.tokenizers import tokenize


def is_text(one: Input, limit: int | None) -> bool:
    """Return True if an input may be token ids, [batch, length] or [length]; ``limit`` is from ``index_limit``."""
    integer = one.dtype is not None and one.dtype.is_integer()
    return integer and len(one.dims or ()) in (1, 2) and role(one, limit) == "ids"


def lines(file: Path) -> list[str]:
    """Return the lines of a text file that are not empty; each is a separate text for the model.

    Raises:
        InputError: the file cannot be read, or is not text.
    """
    return [line.strip() for line in whole_text(file).splitlines() if line.strip()]


def whole_text(file: Path) -> str:
    """Return the whole text of a file.

    Raises:
        InputError: the file cannot be read, or is not text.
    """
    try:
        return read_text(file)
    except OSError as error:
        raise unreadable(error, file) from error
    except Unfit as error:
        raise InputError(f"cannot be read as text: {error}", where=str(file), fix=error.fix) from error


def text(
    one: Input, inputs: Sequence[Input], shape: Sequence[int | None], texts: Sequence[str], tokenizer: Path, most: int
) -> dict[str, Array]:
    """Tokenize texts; return the ids, and the mask, types and positions that other inputs need, by input name.

    Args:
        one: the input for the ids.
        inputs: all inputs of the model.
        shape: shape of the ids; ``None`` for sizes that are not known: the length becomes that of the longest text.
            With a known length, texts are padded or truncated.
        texts: one text for each row of the batch.
        most: memory limit of the ids in bytes; each number counts as 16 bytes.

    Raises:
        InputError: the tokenizer cannot be read, or the text has too many tokens.
        UsageError: the package ``tokenizers`` is not installed.
    """
    arrays = tokenize(tokenizer, texts, shape[-1], most)
    arrays["positions"] = np.broadcast_to(np.arange(arrays["ids"].shape[-1]), arrays["ids"].shape)
    feed: dict[str, Array] = {}
    for other in inputs:
        name = "ids" if other.name == one.name else str(role(other, None))
        if other.name != one.name and (name == "ids" or other.dtype is None or other.dtype.is_floating_point()):
            continue
        if name in arrays and len(other.dims or ()) == len(shape):
            array = arrays[name] if len(shape) == 2 else arrays[name][0]
            feed[other.name] = np.ascontiguousarray(array).astype(other.numpy_type)
    return feed
