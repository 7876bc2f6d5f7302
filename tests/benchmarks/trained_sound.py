"""Sound for the benchmark of trained models: speech by espeak-ng, and melodies of plucked and blown notes.

Nothing here is tuned to a model. Speech is what espeak-ng says; a melody is harmonic notes in a quiet room. Both are
rounded to 16 bits, as a recording is.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

__all__ = ["MELODIES", "SENTENCES", "VOICES", "melody", "resampled", "speech"]

Array = np.ndarray[Any, Any]

SENTENCES = (
    "The ferry leaves at a quarter past nine, so we should walk to the harbour now.",
    "Nobody expected the old bridge to hold through another winter of ice and wind.",
    "Please leave the parcel with the neighbour upstairs, she is at home all day.",
    "A small engine in the cellar keeps the whole building warm and the water hot.",
    "Two of the seven windows were open, and rain had come in over the piano.",
    "She reads the letter twice, folds it, and puts it back into the blue drawer.",
)
"""Of a feed each: two are shown, four are held out."""

VOICES = ("en-us+m3", "en-gb+f2", "en-gb+m7", "en-us+f4", "en-gb-scotland+m1", "en-us+f1")

MELODIES = (
    (60, 64, 67, 72, 71, 67),
    (57, 60, 64, 69, 67, 62),
    (55, 59, 62, 67, 66, 69),
    (48, 55, 60, 63, 62, 58),
    (64, 66, 68, 71, 73, 76),
    (45, 52, 57, 61, 64, 59),
)
"""MIDI numbers of notes, three a second; every second note rings on into the next one."""


def speech(text: str, voice: str, rate: int) -> Array:
    """``text`` as floats of -1 to 1 at ``rate`` Hz.

    Raises:
        SystemExit: espeak-ng is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        try:
            subprocess.run(["espeak-ng", "-v", voice, "-w", str(path), text], check=True, capture_output=True)
        except FileNotFoundError as error:
            raise SystemExit("espeak-ng is not installed; it makes the speech") from error
        samples, at = soundfile.read(path, dtype="float32")
    return resampled(samples, at, rate)


def melody(notes: tuple[int, ...], rate: int, seconds: float = 2.0) -> Array:
    """Notes with nine harmonics that die away, at ``rate`` Hz, over the noise of a room 60 dB below them."""
    rng = np.random.default_rng(sum(notes))
    count = int(seconds * rate)
    found = 1e-3 * rng.standard_normal(count)
    length = count / len(notes)
    for place, note in enumerate(notes):
        start = round(place * length)
        time = np.arange(count - start) / rate
        pitch = 440.0 * 2 ** ((note - 69) / 12)
        tone = sum(np.sin(2 * np.pi * pitch * k * time + rng.uniform(0, 6.3)) / k**1.5 for k in range(1, 10))
        ring = 2.0 if place % 2 else 1.0
        found[start:] += 0.25 * np.minimum(time / 0.02, 1.0) * np.exp(-3.0 * time / ring) * tone
    return _sixteen_bits(found / max(1.0, float(np.max(np.abs(found)))))


def resampled(samples: Array, rate: int, wanted: int) -> Array:
    """At another rate, by linear interpolation after a mean of what falls together."""
    if rate == wanted:
        return samples
    if wanted < rate:
        width = round(rate / wanted)
        samples = np.convolve(samples, np.ones(width) / width, mode="same")
    times = np.arange(int(len(samples) * wanted / rate)) * (rate / wanted)
    return _sixteen_bits(np.interp(times, np.arange(len(samples)), samples))


def _sixteen_bits(samples: Array) -> Array:
    return (np.round(np.clip(samples, -1, 1) * 32767) / 32768).astype(np.float32)
