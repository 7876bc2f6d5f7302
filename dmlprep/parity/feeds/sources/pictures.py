"""Convert picture files to a model's input: layout, size and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from dmlprep.core.errors import UsageError
from dmlprep.parity.feeds.sizes import Input
from dmlprep.portable.arrays import Array
from dmlprep.runtime.tools.pillow import Fit, read_picture
from dmlprep.runtime.tools.reading import too_large

_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Pictures:
    """The conversion of pictures to numbers: value / 255 x ``scale``, less ``mean``, divided by ``deviation``.

    Attributes:
        layout: the axes of the input (``nchw``, ``nhwc``, ``chw``, ``hwc``); empty: guessed from its shape.
        mean, deviation: one number for each channel, or one for all.
        scale: the value of white before ``mean`` and ``deviation``: 1, or 255 for models with that range.
        colour: order of the channels, ``rgb`` or ``bgr``; ``gray``: one channel if the model leaves their number open.
        fit: how to fit a picture to another size, ``crop`` by default (``runtime.tools.pillow``).
    """

    layout: Literal["", "nchw", "nhwc", "chw", "hwc"] = ""
    mean: Sequence[float] = (0.0,)
    deviation: Sequence[float] = (1.0,)
    scale: float = 1.0
    colour: Literal["rgb", "bgr", "gray"] = "rgb"
    fit: Fit = "crop"


def layout_of(one: Input) -> str:
    """Return the layout of a picture input, guessed from its shape, such as ``nchw``; empty if it is not a picture."""
    dims = one.dims or ()
    if len(dims) not in (3, 4) or one.dtype is None:
        return ""
    first, last = dims[-3], dims[-1]
    axes = "chw" if first in _CHANNELS else "hwc" if last in _CHANNELS else ""
    return ("n" if len(dims) == 4 else "") + axes if axes else ""


def is_picture(one: Input) -> bool:
    """Return True if the shape of an input is that of a picture or of a batch of pictures."""
    return bool(layout_of(one))


def pictures(one: Input, shape: Sequence[int | None], files: Sequence[Path], how: Pictures, most: int) -> Array:
    """Return an array for a picture input, with the pictures in ``files``.

    Args:
        one: the input.
        shape: shape of the input; ``None`` for sizes that are not known. Height and width become those of the first
            picture; the channels follow from ``how.colour``, the batch from ``files``.
        files: one for each picture of the batch.
        how: the conversion of pictures to numbers.
        most: memory limit of the input in bytes; each number counts as 16 bytes.

    Raises:
        InputError: a file cannot be read, or is too large.
        UsageError: the layout is not known, the channels are not 1, 3 or 4, or the numbers of mean or deviation are
            neither one nor one for each channel. Or Pillow is not installed.
    """
    layout = how.layout or layout_of(one)
    if len(layout) != len(shape):
        what = f"input {one.name!r} has {len(shape)} axes: their layout is unknown"
        fix = "pass --layout nchw, nhwc, chw or hwc, with as many axes as the input has"
        raise UsageError(what, where="--layout", fix=fix)
    size = {axis: shape[place] for place, axis in enumerate(layout)}
    channels = size["c"] or (1 if how.colour == "gray" else 3)
    if channels not in _CHANNELS:
        what = f"input {one.name!r} has {channels} channels in layout {layout}"
        raise UsageError(what, where="--layout", fix="pictures have 1, 3 or 4; pass another --layout or --input")
    first = read_picture(files[0], channels, (size["h"] or 0, size["w"] or 0), how.fit, most)
    if (needed := 16 * len(files) * first.size) > most:
        raise too_large(f"an input of {len(files)} pictures like this", needed, str(files[0]))
    wanted = (first.shape[0], first.shape[1])
    batch = np.stack([first, *(read_picture(file, channels, wanted, how.fit, most) for file in files[1:])])
    axes = ["nhwc".index(axis) for axis in (layout if len(layout) == 4 else f"n{layout}")]
    done = _values(batch, one, how).transpose(axes)
    return np.ascontiguousarray(done if len(layout) == 4 else done[0])


def _values(batch: Array, one: Input, how: Pictures) -> Array:
    """Return pictures in bytes, [N, H, W, C], as the numbers that the model needs, in its element type."""
    kind, channels = one.numpy_type, batch.shape[-1]
    if how.colour == "bgr" and channels >= 3:
        batch = batch[..., [2, 1, 0, *range(3, channels)]]
    if kind == np.uint8 and how == Pictures(how.layout, colour=how.colour, fit=how.fit):
        return batch
    for name, numbers in (("--mean", how.mean), ("--deviation", how.deviation)):
        if len(numbers) not in (1, channels):
            what = f"{len(numbers)} numbers for {channels} channels"
            raise UsageError(what, where=name, fix="pass one number, or one for each channel")
    values = (batch / 255.0 * how.scale - np.asarray(how.mean)) / np.asarray(how.deviation)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return np.asarray(values, kind)
