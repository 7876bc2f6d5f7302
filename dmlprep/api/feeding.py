"""Inputs for proofs, made from pictures, sound or text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from dmlprep.parity.sources import Made, Pictures

__all__ = ["make_feeds"]


def make_feeds(
    path: str | Path,
    sources: Sequence[str | Path],
    *,
    out: str | Path,
    count: int = 4,
    input: str = "",
    sizes: Mapping[str, int] | None = None,
    values: Mapping[str, np.ndarray[Any, Any]] | None = None,
    pictures: Pictures | None = None,
    rate: int | None = None,
    tokenizer: str | Path | None = None,
    force: bool = False,
) -> Made:
    """Make feeds from pictures, sound or text (docs/feeds.md), one ``.npz`` each.

    Args:
        path: the model: names, layout, sizes and types are read from it.
        sources: files, or folders of them.
        out: folder for the feeds; ``feeds=[out]`` of the other functions takes it.
        count: how many; they are taken evenly from all files, or lines of text.
        input: the input that takes them, where several could.
        sizes: sizes for free dimensions, by name or by ``input:axis``.
        values: what other inputs get; those not named get made values.
        pictures: layout, mean, deviation, scale, order of channels and fit (``dmlprep.parity.sources.Pictures``).
        rate: samples a second that the model takes; by default those of the files.
        tokenizer: the ``tokenizer.json``; by default the one beside the model or the text.
        force: replace files that are there.

    Returns:
        the files, the shapes, and which inputs got made values.

    Raises:
        InputError: the model, a file or a value cannot be read, or does not fit.
        UsageError: no input, or several, can take the files; or Pillow, soundfile or tokenizers is not installed.
        OutputError: ``out`` holds such files already, or cannot be written.
    """
    from dmlprep.parity.sources import FeedsRequest, Pictures, feeds_from

    return feeds_from(
        FeedsRequest(
            Path(path),
            [Path(source) for source in sources],
            Path(out),
            count=count,
            input=input,
            sizes=dict(sizes or {}),
            values=dict(values or {}),
            pictures=pictures or Pictures(),
            rate=rate,
            tokenizer=Path(tokenizer) if tokenizer is not None else None,
            force=force,
        )
    )
