"""Pillow: pictures as arrays of bytes, upright and of a size. It is an extra. Files are read in a process of their own;
arrays that dmlprep has already are resized here."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from dmlprep.graph.model.budget import BYTES
from dmlprep.portable.arrays import Array
from dmlprep.runtime.tools.extras import extra
from dmlprep.runtime.tools.reading import MEMORY, Reading, taken

Fit = Literal["crop", "pad", "stretch"]

_READING = Reading("PIL.Image", "Pillow", "reading pictures", "a picture")


def read_picture(path: Path, channels: int, size: tuple[int, int], fit: Fit, most: int) -> Array:
    """Read a picture in a process of its own, and turn it as its EXIF data say.

    Args:
        channels: 1 (gray), 3 (RGB) or 4 (RGBA).
        size: height and width; 0 for those of the picture.
        fit: how it comes to another shape: what hangs over is cut off, black is added at the right and at the bottom,
            or it is stretched.
        most: bytes that the picture may have when it is decoded, and that it may become at 16 bytes a number.

    Returns:
        bytes [height, width, channels].

    Raises:
        InputError: the file cannot be read as a picture, or is too large.
        UsageError: Pillow is not installed.
    """
    arguments = [str(channels), str(size[0]), str(size[1]), fit, str(most)]
    return _READING.ask(
        "picture",
        path,
        arguments,
        lambda found, out: taken(out, "uint8", (found[0], found[1], channels), most),
        memory=MEMORY + 3 * max(0, most - BYTES),
    )


def resize(image: Array, size: tuple[int, int], mode: str) -> Array:
    """A picture of another size.

    Args:
        image: [height, width, channels]: bytes of one or three channels, or floats.
        size: height and width.
        mode: of Pillow's ``Resampling``, in lower case.

    Returns:
        bytes for bytes, else float32.

    Raises:
        UsageError: Pillow is not installed.
    """
    module = extra("PIL.Image", "Pillow", "resizing pictures as Pillow does")
    resample = module.Resampling[mode.upper()]
    # Channels by themselves: Pillow has no pictures of several floats, and none of its filters mixes channels.
    planes = [
        image[..., c] if image.dtype == np.uint8 else image[..., c].astype(np.float32) for c in range(image.shape[2])
    ]
    made = [module.fromarray(np.ascontiguousarray(plane)).resize(size[::-1], resample) for plane in planes]
    return np.stack([np.asarray(plane) for plane in made], -1)
