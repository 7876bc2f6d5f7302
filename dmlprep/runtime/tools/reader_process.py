"""The process behind ``runtime/tools/reading.py``: read third-party files with Pillow, soundfile and tokenizers.

It runs as a file. Of dmlprep it imports only ``confinement.py``, and each library only when a file needs it. It uses
the line format of ``process/wire.py``. Arrays are returned as raw elements in a file. The size of the result follows
from the file's header. If it exceeds the request's limit, the answer is ``large``, and the file is not decoded.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

PICTURES = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM")
"""Pillow's names of the accepted formats. Other formats start programs (EPS: Ghostscript) or are poorly maintained."""

SOUNDS = ("WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3", "MPEG", "AIFF")
"""soundfile's names of the accepted formats."""

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}

_PIXEL = 4
"""Largest size of a pixel in Pillow's memory, in bytes."""

_NUMBER = 16
"""Size in bytes that counts for each number of an input, the same as for synthetic inputs."""

_RESAMPLED = 32
"""Size in bytes that counts for each sample if the rate changes, because its Fourier transform has that size."""

_BLOCK = 1 << 20
"""Number of samples, over all channels, that are decoded together."""

_PADDING = ("[PAD]", "<pad>", "<|endoftext|>", "</s>")
"""Usual names of the padding token, for a tokenizer without its own padding. The last two end a text, but the mask
hides them from the model."""

Answer = list[str]


class _Large(Exception):
    """The result would exceed the limit of the request.

    The arguments are a description, and the bytes that the result needs.
    """


def _picture(path: str, out: str, channels: str, height: str, width: str, fit: str, most: str) -> Answer:
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None  # checked below, in bytes
    with Image.open(path, formats=PICTURES) as opened:
        if (needed := opened.width * opened.height * _PIXEL) > int(most):
            raise _Large(f"a picture of {opened.width} x {opened.height} pixels", needed)
        opened.load()
        ImageOps.exif_transpose(opened, in_place=True)
        mode = _MODES[int(channels)]
        picture = opened.convert(mode)
    wanted = (int(width) or picture.width, int(height) or picture.height)
    if (needed := wanted[0] * wanted[1] * int(channels) * _NUMBER) > int(most):
        raise _Large(f"an input of {wanted[0]} x {wanted[1]} pixels", needed)
    if wanted != picture.size:
        if fit == "stretch":
            picture = picture.resize(wanted, Image.Resampling.BICUBIC)
        elif fit == "crop":
            picture = ImageOps.fit(picture, wanted, Image.Resampling.BICUBIC)
        else:
            scaled = ImageOps.contain(picture, wanted, Image.Resampling.BICUBIC)
            picture = Image.new(mode, wanted)
            picture.paste(scaled, (0, 0))
    Path(out).write_bytes(picture.tobytes())
    return ["value", str(picture.height), str(picture.width)]


def _sound(path: str, out: str, rate: str, length: str, most: str) -> Answer:
    """Read a sound file into ``out``; return its number of samples and its rate.

    For an input of known length, only the beginning is read if the file is too large.
    """
    import soundfile

    with soundfile.SoundFile(path) as file:
        if file.format not in SOUNDS:
            raise ValueError(f"unsupported format: {file.format}")
        own, channels = int(file.samplerate), int(file.channels)
        if own < 1 or channels < 1:
            raise ValueError("its header has no rate or no channels")
        wanted = int(rate) or own
        # Bytes of one sample: decoded, and at the higher of the two rates.
        frame = max(4 * channels, (_NUMBER if wanted == own else _RESAMPLED) * max(1, wanted / own))
        count, fitting = int(file.frames), int(int(most) / frame)
        if count > fitting and not int(length):
            raise _Large(f"a sound of {count} samples at {own} Hz, at {wanted} Hz", int(count * frame))
        blocks = []
        count, step = min(count, fitting), max(1, _BLOCK // channels)
        while count > 0 and len(block := file.read(min(step, count), dtype="float32", always_2d=True)):
            blocks.append(block.mean(axis=1))
            count -= len(block)
    if not blocks:
        raise ValueError("it has no samples")
    samples = np.concatenate(blocks)
    samples.tofile(out)
    return ["value", str(len(samples)), str(own)]


def _tokenizer(path: str) -> Any:
    os.putenv("TOKENIZERS_PARALLELISM", "false")  # threads reserve address space, which counts against the memory limit
    from tokenizers import Tokenizer

    return Tokenizer.from_file(path)


def _tokenize(path: str, texts: str, out: str, length: str, most: str) -> Answer:
    tokenizer = _tokenizer(path)
    padding = tokenizer.padding or {}
    known = {key: padding[key] for key in ("direction", "pad_id", "pad_type_id", "pad_token") if key in padding}
    known.setdefault("pad_id", next((i for t in _PADDING if (i := tokenizer.token_to_id(t)) is not None), 0))
    tokenizer.no_padding()
    if int(length):
        tokenizer.enable_truncation(int(length))
    else:
        tokenizer.no_truncation()
    encoded = tokenizer.encode_batch(json.loads(Path(texts).read_bytes()))
    longest = int(length) or max(len(one.ids) for one in encoded)
    if (needed := len(encoded) * longest * _NUMBER) > int(most):
        raise _Large(f"{len(encoded)} texts of up to {longest} tokens", needed)
    for one in encoded:
        one.pad(longest, **known)
    columns = ("ids", "attention_mask", "type_ids")
    np.array([[getattr(one, name) for one in encoded] for name in columns], np.int64).tofile(out)
    return ["value", str(len(encoded)), str(longest)]


def _detokenize(path: str, rows: str, out: str) -> Answer:
    texts = _tokenizer(path).decode_batch(json.loads(Path(rows).read_bytes()))
    with open(out, "wb") as file:
        for text in texts:
            file.write(text.replace("\0", "\ufffd").encode(errors="replace") + b"\0")
    return ["value", str(len(texts))]


WORK: dict[str, Callable[..., Answer]] = {
    "picture": _picture,
    "sound": _sound,
    "tokenize": _tokenize,
    "detokenize": _detokenize,
}


def _bounding() -> Callable[[int], None]:
    """Return a function that limits this process's memory to a number of bytes above its present use (Linux).

    On other systems, the function does nothing.
    """
    if not sys.platform.startswith("linux"):
        return lambda _memory: None  # on Windows the parent's job object limits it
    from dmlprep.process.confinement import bounding  # die_with_parent.py has already imported it

    return bounding()


def _answer(fields: Sequence[str], bound: Callable[[int], None]) -> list[Answer]:
    word, memory, *arguments = fields
    try:
        bound(int(memory))
        return [WORK[word](*arguments), ["ok"]]
    except _Large as large:
        return [["large", *map(str, large.args)], ["ok"]]
    except ImportError as error:
        return [["fail", "load", str(error) or "ImportError"]]
    except MemoryError:
        return [["memory"], ["ok"]]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust is not an Exception
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return [["fail", "run", (lines[0] if lines else type(error).__name__)[:2000]]]


def _main() -> None:
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.kernel32.SetErrorMode(0x8003)  # a crash ends it, without a dialog that waits for a click
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of native code is not an answer
    bound = _bounding()
    for line in sys.stdin.buffer:
        fields = [unquote(field, errors="surrogateescape") for field in line.decode("ascii").split()]
        if fields == ["quit"]:
            return
        for answer in _answer(fields, bound):
            out.write(" ".join(quote(field, errors="replace") for field in answer).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    _main()
