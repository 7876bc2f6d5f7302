"""Pillow: pictures as arrays of bytes, upright and of a size. It is imported when a picture is read: it is an extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from dmlprep.engines.extras import extra
from dmlprep.errors import InputError

__all__ = ["Fit", "read_picture", "resize"]

Fit = Literal["crop", "pad", "stretch"]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_picture(path: Path, channels: int, size: tuple[int, int] | None, fit: Fit) -> np.ndarray[Any, Any]:
    """A picture, turned as its EXIF data say.

    Args:
        channels: 1 (gray), 3 (RGB) or 4 (RGBA).
        size: height and width; ``None`` for its own.
        fit: how it comes to another shape: what hangs over is cut off, black is added at the right and at the bottom,
            or it is stretched.

    Returns:
        bytes [height, width, channels].

    Raises:
        InputError: the file cannot be read as a picture.
        UsageError: Pillow is not installed.
    """
    module, operations = (extra(name, "Pillow", "reading pictures") for name in ("PIL.Image", "PIL.ImageOps"))
    try:
        with module.open(path) as opened:
            picture = operations.exif_transpose(opened).convert(_MODES[channels])
    except (OSError, ValueError, SyntaxError, module.DecompressionBombError) as error:
        raise InputError(f"cannot be read as a picture: {error}", where=str(path)) from error
    if size is not None:
        wanted = (size[1], size[0])
        if fit == "stretch":
            picture = picture.resize(wanted, module.Resampling.BICUBIC)
        elif fit == "crop":
            picture = operations.fit(picture, wanted, module.Resampling.BICUBIC)
        else:
            scaled = operations.contain(picture, wanted, module.Resampling.BICUBIC)
            picture = module.new(picture.mode, wanted)
            picture.paste(scaled, (0, 0))
    array = np.asarray(picture)
    return array.reshape(*array.shape[:2], channels)


def resize(image: np.ndarray[Any, Any], size: tuple[int, int], mode: str) -> np.ndarray[Any, Any]:
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
