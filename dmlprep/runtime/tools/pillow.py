"""Read and resize pictures with Pillow, an optional package.

Pictures become arrays of uint8, upright and of the requested size. Files are read in a separate process. Arrays are
resized in this process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from dmlprep.graph.model.budget import BYTES
from dmlprep.portable.arrays import Array
from dmlprep.process.wire import read_tensor
from dmlprep.runtime.tools.extras import extra
from dmlprep.runtime.tools.reading import MEMORY, Reading

Fit = Literal["crop", "pad", "stretch"]

_READING = Reading("PIL.Image", "Pillow", "reading pictures", "a picture")


def read_picture(path: Path, channels: int, size: tuple[int, int], fit: Fit, most: int) -> Array:
    """Read a picture in a separate process, upright (EXIF), as an array of uint8 [height, width, channels].

    Args:
        channels: 1 (gray), 3 (RGB) or 4 (RGBA).
        size: height and width of the result; 0 for those of the picture.
        fit: how the picture gets another shape: ``crop`` cuts the excess, ``pad`` adds black at the right and the
            bottom, ``stretch`` distorts it.
        most: limit in bytes for the decoded picture, and for the result at 16 bytes for each number.

    Raises:
        InputError: the file cannot be read as a picture, or is too large.
        UsageError: Pillow is not installed.
    """
    arguments = [str(channels), str(size[0]), str(size[1]), fit, str(most)]

    def take(shape: list[int], out: Path) -> Array:
        return read_tensor(out, "uint8", (shape[0], shape[1], channels), limit=most)

    return _READING.ask("picture", path, arguments, take, memory=MEMORY + 3 * max(0, most - BYTES))


def resize(image: Array, size: tuple[int, int], mode: str) -> Array:
    """Return a resized picture [height, width, channels]: uint8 with one or three channels, or floats as float32.

    ``size`` is height and width. ``mode`` is a member of Pillow's ``Resampling``, in lower case.

    Raises:
        UsageError: Pillow is not installed.
    """
    module = extra("PIL.Image", "Pillow", "resizing pictures as Pillow does")
    resample = module.Resampling[mode.upper()]
    # Each channel is resized alone: Pillow has no pictures with several float channels, and no filter mixes channels.
    planes = np.moveaxis(image if image.dtype == np.uint8 else image.astype(np.float32), -1, 0)
    resized = [module.fromarray(np.ascontiguousarray(plane)).resize(size[::-1], resample) for plane in planes]
    return np.stack([np.asarray(plane) for plane in resized], -1)
