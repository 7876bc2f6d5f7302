"""Read sound as one row of floats with soundfile, an optional package, in a separate process."""

from __future__ import annotations

from pathlib import Path

from dmlprep.graph.model.budget import BYTES
from dmlprep.portable.arrays import Array
from dmlprep.process.wire import read_tensor
from dmlprep.runtime.tools.reading import MEMORY, Reading

_READING = Reading("soundfile", "soundfile", "reading sound", "sound")


def read_sound(path: Path, rate: int | None, length: int | None, most: int) -> tuple[Array, int]:
    """Read a sound file and average its channels; return float32 [samples] from -1 to 1, and its samples per second.

    The samples have the rate of the file.

    Args:
        rate: the samples per second after a later conversion, which counts for the limit; ``None`` for the file's rate.
        length: the number of samples needed; then a file that is too large is read from its beginning only.
        most: limit for the result in bytes, at 16 bytes for each sample, at both rates.

    Raises:
        InputError: the file cannot be read as sound, has no samples, or is too large.
        UsageError: soundfile is not installed.
    """
    arguments = [str(rate or 0), str(length or 0), str(most)]

    def take(numbers: list[int], out: Path) -> tuple[Array, int]:
        return read_tensor(out, "float32", (numbers[0],), limit=most), numbers[1]

    return _READING.ask("sound", path, arguments, take, memory=MEMORY + 3 * max(0, most - BYTES))
