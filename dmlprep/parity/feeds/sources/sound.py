"""Convert sound files to a model's input: sample rate, length, and the loudest part of long files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dmlprep.core.errors import UsageError
from dmlprep.parity.feeds.sizes import Input
from dmlprep.portable.arrays import Array
from dmlprep.runtime.tools.reading import too_large
from dmlprep.runtime.tools.soundfile import read_sound


def is_sound(one: Input) -> bool:
    """Return True if an input may be sound: [samples], [batch, samples], [batch, 1, samples] or [batch, samples, 1]."""
    dims = one.dims or ()
    numbers = one.dtype is not None and (one.dtype.is_floating_point() or one.dtype.name == "INT16")
    if not numbers or not 1 <= len(dims) <= 3:
        return False
    return len(dims) < 3 or dims[1] == 1 or dims[2] == 1


def sound(
    one: Input, shape: Sequence[int | None], files: Sequence[Path], rate: int | None, most: int
) -> tuple[Array, int]:
    """Return an array for a sound input, and its sample rate in Hz.

    Args:
        one: the input.
        shape: shape of the input; ``None`` for sizes that are not known. A longer file is cut to its loudest part; a
            shorter one is padded with silence. An unknown length becomes that of the first file.
        files: one for each row of the batch.
        rate: sample rate of the model's input in Hz; ``None``: the rate of the first file.
        most: memory limit of the input in bytes; each number counts as 16 bytes. If a file is larger and the length is
            fixed, only its beginning is read.

    Raises:
        InputError: a file cannot be read, or is too large.
        UsageError: the input does not have the shape of sound, or soundfile is not installed.
    """
    if not is_sound(one):
        what = f"input {one.name!r} {list(one.dims or ())} has no axes for audio"
        fix = "choose an input of samples with --input: [batch, samples]; pass spectrograms with --feeds"
        raise UsageError(what, where="--input", fix=fix)
    dims = one.dims or ()
    place = 1 if len(dims) == 3 and dims[2] == 1 else len(dims) - 1
    length, rows = shape[place], []
    for file in files:
        samples, own = read_sound(file, rate, length, most)
        rate = rate or own
        row = resampled(samples, own, rate)
        length = length or len(row)
        if (needed := 16 * len(files) * length) > most:
            raise too_large(f"an input of {len(files)} x {length} samples", needed, str(file))
        rows.append(_loudest(row, length))
    assert rate is not None
    batch = np.stack(rows) if len(shape) > 1 else rows[0]
    if len(shape) == 3:
        batch = np.expand_dims(batch, 3 - place)
    return _values(batch, one.numpy_type), rate


def resampled(samples: Array, rate: int, wanted: int) -> Array:
    """Return samples converted from ``rate`` to ``wanted`` (Hz) by the Fourier transform.

    Frequencies that the new rate cannot represent are dropped.
    """
    if rate == wanted:
        return samples
    count = max(1, round(len(samples) * wanted / rate))
    return np.fft.irfft(np.fft.rfft(samples), count).astype(np.float32) * np.float32(count / len(samples))


def _loudest(row: Array, length: int) -> Array:
    """Return the loudest ``length`` samples in a row; a shorter row is padded with zeros at its end."""
    if len(row) <= length:
        return np.pad(row, (0, length - len(row)))
    energy = np.concatenate([[0.0], np.cumsum(np.square(row, dtype=np.float64))])
    start = int(np.argmax(energy[length:] - energy[:-length]))
    return row[start : start + length]


def _values(samples: Array, kind: np.dtype) -> Array:
    if kind.kind == "i":
        samples = np.clip(np.rint(samples * 32767), -32768, 32767)
    return np.asarray(samples, kind)
