"""Pictures, sound and tokenizers as small files: good ones, ones that lie about their size, and other formats."""

from __future__ import annotations

import json
import random
import struct
import zlib
from functools import cache
from typing import Any

from onnx import TensorProto, helper

from tests.fuzz.archives import mutated_archive
from tests.fuzz.values import INTEGERS, spoiled

__all__ = ["MEDIA", "media", "reader_model"]

MEDIA = ("picture", "sound", "text", "arrays")

_EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(ran.txt) (w) file closefile\nshowpage\n"
_PICTURE_NAMES = ("p.png", "p.jpg", "p.bmp", "p.webp", "p.tif", "p.gif", "p.eps", "p.ico")
_PATTERNS = ("(a+)+$", "(", "\\p{Zzz}", "(?:x{1000}){1000}", ".*", "[", "\\1", "(?<=a)b", "a|" * 2000)
_PADDING = {
    "strategy": {"Fixed": 2**40},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "[UNK]",
}


@cache
def reader_model(kind: str) -> bytes:
    """A model with one input for that kind of feed."""
    shapes: dict[str, tuple[int, list[int | str]]] = {
        "picture": (TensorProto.FLOAT, [1, 3, 8, 8]),
        "sound": (TensorProto.FLOAT, [1, "samples"]),
        "text": (TensorProto.INT64, [1, "sequence"]),
        "arrays": (TensorProto.FLOAT, [1, 4]),
    }
    dtype, shape = shapes[kind]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def media(rng: random.Random, kind: str, feeds: bytes) -> tuple[dict[str, bytes], list[str]]:
    """Files of one kind, and the arguments of ``dmlprep feeds`` that name them."""
    if kind == "picture":
        name = rng.choice(_PICTURE_NAMES) if rng.random() < 0.3 else "p.png"
        return {name: _picture(rng)}, [name, *rng.choice(([], ["--fit", "pad"], ["--colour", "gray"]))]
    if kind == "sound":
        rate = rng.choice(("16000", "1", "8000", "1073741824"))
        return {"s.wav": _sound(rng)}, ["s.wav", "--rate", rate]
    if kind == "text":
        lines = rng.choice(("one two three\n", "a" * 5000, "\0\n\x1b[31m\n", "", "one\n" * 3000))
        files = {"tokenizer.json": _tokenizer(rng), "t.txt": lines.encode()}
        return files, ["t.txt", "--tokenizer", "tokenizer.json"]
    return {"f.npz": mutated_archive(rng, feeds)}, ["f.npz"]


def _picture(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return _EPS
    edge = rng.choice((1, 8, 64, 300, 20_000, 65_535, 2**31 - 1, 0))
    other = rng.choice((edge, 1, 8))
    depth, colour = rng.choice(((8, 2), (8, 0), (8, 6), (16, 2), (1, 0), (8, 3), (7, 9)))
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colour, 1)
    honest = edge * other * channels * max(depth, 8) // 8 + other
    held = zlib.compress(bytes(min(honest, rng.choice((honest, 100, 40 << 20)), 40 << 20)), 1)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", edge, other, depth, colour, 0, 0, rng.choice((0, 0, 1, 7))))]
    if colour == 3 and rng.random() < 0.8:
        chunks.append((b"PLTE", bytes(rng.choice((3, 768, 4)))))
    if rng.random() < 0.1:
        chunks.append((b"acTL", struct.pack(">II", rng.choice((2, 2**31 - 1)), 0)))
    if rng.random() < 0.1:
        chunks.append((b"iCCP", b"x\0\0" + zlib.compress(bytes(20 << 20), 9)))
    chunks += [(b"IDAT", held), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)
    return spoiled(rng, data) if rng.random() < 0.2 else data


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _sound(rng: random.Random) -> bytes:
    rate = rng.choice((16_000, 44_100, 1, 0, 2**31 - 1, 8_000))
    channels, bits = rng.choice((1, 1, 2, 0, 65_535)), rng.choice((16, 8, 24, 32, 7))
    body = bytes(rng.choice((0, 200, 32_000, 2_000_000)))
    said = len(body) if rng.random() < 0.7 else rng.choice((0, 2**31, 2**32 - 1))
    form = rng.choice((1, 1, 3, 0xFFFE, 2, 17))
    head = struct.pack(
        "<HHIIHH", form, channels, rate, (rate * channels * bits // 8) % 2**32, channels * bits // 8 % 2**16, bits
    )
    riff = b"WAVEfmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", said) + body
    data = b"RIFF" + struct.pack("<I", len(riff) % 2**32) + riff
    return spoiled(rng, data) if rng.random() < 0.2 else data


def _tokenizer(rng: random.Random) -> bytes:
    pattern = rng.choice(({"String": rng.choice(("", "a", " "))}, {"Regex": rng.choice(_PATTERNS)}))
    content = rng.choice(("", "b", "a" * 1000, "aa"))
    replace: dict[str, Any] = {"type": "Replace", "pattern": pattern, "content": content}
    times = rng.choice((1, 1, 3, 40))
    vocabulary = {"[UNK]": 0, "one": 1, "two": 2} | {f"w{n}": n for n in range(3, rng.choice((4, 2000)))}
    if rng.random() < 0.2:
        vocabulary["three"] = rng.choice([n for n in INTEGERS if n >= 0])
    root: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": rng.choice((None, None, _PADDING)),
        "added_tokens": [],
        "normalizer": rng.choice((None, replace, {"type": "Sequence", "normalizers": [replace] * times})),
        "pre_tokenizer": rng.choice(
            ({"type": "Whitespace"}, {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False})
        ),
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": rng.choice(("[UNK]", "none"))},
    }
    if rng.random() < 0.1:
        return b"[" * 50_000
    data = json.dumps(root).encode()
    return spoiled(rng, data) if rng.random() < 0.15 else data
