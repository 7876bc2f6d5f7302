"""Pictures, sound and tokenizers that do harm: bombs, other formats behind a harmless ending, panics."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import wave
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlprep
from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.graph.model.budget import Limits, limited
from dmlprep.parity import load_feeds
from tests.in_process import Run, run
from tests.parity.models import parse

__all__ = ["run"]

_HOW = "pip install -e '.[dev]'"
image = pytest.importorskip("PIL.Image", reason=_HOW)
soundfile = pytest.importorskip("soundfile", reason=_HOW)
pytest.importorskip("tokenizers", reason=_HOW)

SEES = "g (uint8[1, h, w, 3] x) => (uint8[1, h, w, 3] y) { y = Identity(x) }"
SEES_SMALL = "g (uint8[1, 8, 8, 3] x) => (uint8[1, 8, 8, 3] y) { y = Identity(x) }"
HEARS = "g (float[1, length] x) => (float[1, length] y) { y = Tanh(x) }"
READS = "g (int64[batch, seq] input_ids) => (int64[batch, seq] y) { y = Identity(input_ids) }"


def made(model: str, source: Path, tmp_path: Path, **options: Any) -> dict[str, np.ndarray]:
    dmlprep.make_feeds(parse(model, tmp_path / "m.onnx"), [source], out=tmp_path / "feeds", **options)
    return dict(load_feeds([tmp_path / "feeds"])[0])


def _png(path: Path, side: int) -> Path:
    """A picture of ``side`` x ``side`` pixels in black, of one bit each."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((side + 7) // 8 + 1) * side, 1)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    return path


@pytest.mark.parametrize(("model", "side"), [(SEES_SMALL, 13_000), (SEES_SMALL, 60_000), (SEES, 6_000)])
def test_a_picture_is_judged_before_it_is_decoded(model: str, side: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"too large to read: .* {side} x {side} pixels needs") as caught:
        made(model, _png(tmp_path / "a.png", side), tmp_path)
    assert "--limit made_bytes=" in caught.value.fix
    assert not (tmp_path / "feeds").exists()


def test_a_large_picture_for_a_small_input_is_read(tmp_path: Path) -> None:
    assert made(SEES_SMALL, _png(tmp_path / "a.png", 4_000), tmp_path)["x"].shape == (1, 8, 8, 3)


def test_more_may_be_made_of_a_file_that_is_to_be_trusted(tmp_path: Path) -> None:
    picture = _png(tmp_path / "a.png", 200)
    with limited(Limits(made_bytes=1 << 20)), pytest.raises(InputError, match=r"too large to read: .* needs 2 MiB"):
        made(SEES, picture, tmp_path)
    assert made(SEES, picture, tmp_path)["x"].shape == (1, 200, 200, 3)


def test_a_batch_of_pictures_is_judged_as_a_whole(tmp_path: Path) -> None:
    with limited(Limits(made_bytes=4 << 20)), pytest.raises(InputError, match="8 pictures like this needs 15 MiB"):
        made(SEES.replace("1,", "8,"), _png(tmp_path / "a.png", 200), tmp_path)


def test_an_input_that_is_too_large_by_itself_is_refused_before_any_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(ModelRefused, match="input 'x' of shape") as caught:
        made(SEES.replace("h, w", "60000, 60000"), tmp_path / "a.png", tmp_path)
    assert caught.value.code == "DP014"


def test_a_picture_of_another_format_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow gives PostScript to the first ``gs`` of PATH."""
    tools, mark = tmp_path / "tools", tmp_path / "started"
    tools.mkdir()
    (tools / "gs").write_text(f"#!/bin/sh\ntouch {mark}\nexit 0\n")
    (tools / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    image.new("RGB", (16, 16)).save(tmp_path / "a.eps")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.eps").read_bytes())
    with pytest.raises(InputError, match="cannot be read as a picture"):
        made(SEES, tmp_path / "a.png", tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM"])
def test_documented_pictures_are_read_and_broken_ones_are_input_errors(kind: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8)
    path = tmp_path / "a.png"
    image.fromarray(pixels).save(path, kind)
    assert made(SEES_SMALL, path, tmp_path)["x"].shape == (1, 8, 8, 3)
    whole, random = path.read_bytes(), np.random.default_rng(1)
    for _ in range(3):
        data = bytearray(whole)
        for _ in range(4):
            data[random.integers(len(data))] = random.integers(256)
        path.write_bytes(bytes(data[: random.integers(1, len(data))]))
        with contextlib.suppress(InputError):
            made(SEES_SMALL, path, tmp_path, force=True)


def _wav(path: Path, rate: int, count: int) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(b"\1\0" * count)
    return path


def test_a_sound_is_judged_at_the_rate_that_it_gets(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too large to read: a sound of 16000 samples at 1 Hz, at 16000 Hz needs"):
        made(HEARS, _wav(tmp_path / "a.wav", 1, 16_000), tmp_path, rate=16_000)


def test_a_sound_that_is_longer_than_its_input_needs_is_read_from_its_beginning(tmp_path: Path) -> None:
    model = HEARS.replace("length", "1000")
    with limited(Limits(made_bytes=4 << 20)):
        slow = _wav(tmp_path / "slow.wav", 1, 16_000)
        assert made(model, slow, tmp_path, rate=16_000)["x"].shape == (1, 1000)
        long = _wav(tmp_path / "long.wav", 8_000, 1 << 20)
        assert made(model, long, tmp_path, force=True)["x"].shape == (1, 1000)


def test_a_long_silence_takes_few_bytes_and_no_time(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    with soundfile.SoundFile(path, "w", 8_000, 1) as file:
        for _ in range(40):
            file.write(np.zeros(1 << 20, np.float32))
    with pytest.raises(InputError, match="too large to read: a sound of 41943040 samples"):
        made(HEARS, path, tmp_path)


@pytest.mark.parametrize("kind", ["AU", "CAF", "VOC"])
def test_a_sound_of_another_format(kind: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.au", np.zeros(100), 8_000, format=kind)
    (tmp_path / "a.wav").write_bytes((tmp_path / "a.au").read_bytes())
    with pytest.raises(InputError, match="cannot be read as sound: unsupported format"):
        made(HEARS, tmp_path / "a.wav", tmp_path)


def _tokenizer(folder: Path, **parts: Any) -> None:
    from tokenizers import Tokenizer, models

    words = {"[UNK]": 0, "the": 1}
    document = json.loads(Tokenizer(models.WordLevel(words, unk_token="[UNK]")).to_str())
    (folder / "tokenizer.json").write_text(json.dumps({**document, **parts}), encoding="utf-8")


def _replace(text: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


PANICS = {"type": "Replace", "pattern": {"Regex": "(a|aa)+$"}, "content": "x"}
GROWS = {"type": "Sequence", "normalizers": [_replace("a", "a" * 2000)] * 5}


@pytest.mark.parametrize("normalizer", [PANICS, GROWS], ids=["panic", "memory"])
def test_a_tokenizer_that_does_harm_is_an_input_error(normalizer: Any, run: Run, tmp_path: Path) -> None:
    _tokenizer(tmp_path, normalizer=normalizer)
    (tmp_path / "t.txt").write_text("a" * 60 + "b")
    done = run("feeds", parse(READS, tmp_path / "m.onnx"), tmp_path / "t.txt", "-o", tmp_path / "feeds")
    assert (done.code, done.out) == (2, "")
    assert f"error: {tmp_path / 'tokenizer.json'}: cannot be read as a tokenizer: " in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "feeds").exists()


def test_a_text_of_too_many_tokens(tmp_path: Path) -> None:
    _tokenizer(tmp_path, pre_tokenizer={"type": "Whitespace"})
    (tmp_path / "t.txt").write_text("the " * 100_000)
    with limited(Limits(made_bytes=1 << 20)), pytest.raises(InputError, match="1 texts of up to 100000 tokens needs"):
        made(READS, tmp_path / "t.txt", tmp_path)
    assert made(READS, tmp_path / "t.txt", tmp_path)["input_ids"].shape == (1, 100_000)


def test_files_of_others_are_read_by_another_process_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library cannot be used here, the feeds are made all the same."""
    _png(tmp_path / "a.png", 20)
    monkeypatch.setattr(image, "open", None)
    monkeypatch.setitem(sys.modules, "PIL.ImageOps", None)
    assert made(SEES_SMALL, tmp_path / "a.png", tmp_path)["x"].shape == (1, 8, 8, 3)
