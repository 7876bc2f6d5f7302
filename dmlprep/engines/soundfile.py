"""soundfile: sound as one row of floats. It is imported when a file is read: it is an extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dmlprep.engines.extras import extra
from dmlprep.errors import InputError

__all__ = ["read_sound"]


def read_sound(path: Path) -> tuple[np.ndarray[Any, Any], int]:
    """A sound file, its channels averaged.

    Returns:
        float32 [samples] within -1 and 1, and samples a second.

    Raises:
        InputError: the file cannot be read as sound, or holds none.
        UsageError: soundfile is not installed.
    """
    module = extra("soundfile", "soundfile", "reading sound")
    try:
        samples, rate = module.read(str(path), dtype="float32", always_2d=True)
    except (OSError, RuntimeError) as error:
        raise InputError(f"cannot be read as sound: {error}", where=str(path)) from error
    if not len(samples):
        raise InputError("holds no sound", where=str(path))
    return samples.mean(axis=1), int(rate)
