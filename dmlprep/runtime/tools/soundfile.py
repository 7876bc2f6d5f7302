"""soundfile: sound as one row of floats. It is an extra, and reads files in a process of its own."""

from __future__ import annotations

from pathlib import Path

from dmlprep.graph.model.budget import BYTES
from dmlprep.portable.arrays import Array
from dmlprep.process.wire import read_tensor
from dmlprep.runtime.tools.reading import MEMORY, Reading

_READING = Reading("soundfile", "soundfile", "reading sound", "sound")


def read_sound(path: Path, rate: int | None, length: int | None, most: int) -> tuple[Array, int]:
    """Read a sound file and average its channels: float32 [samples] within -1 and 1, and samples a second.

    Args:
        rate: samples a second that it is to have later; ``None`` for its own.
        length: samples that are needed of it: then a file that is too large is read from its beginning only.
        most: bytes that it may become, at 16 bytes a sample, at its own rate and at the other.

    Raises:
        InputError: the file cannot be read as sound, holds none, or is too large.
        UsageError: soundfile is not installed.
    """
    arguments = [str(rate or 0), str(length or 0), str(most)]

    def take(numbers: list[int], out: Path) -> tuple[Array, int]:
        return read_tensor(out, "float32", (numbers[0],), limit=most), numbers[1]

    return _READING.ask("sound", path, arguments, take, memory=MEMORY + 3 * max(0, most - BYTES))
