"""Programs and libraries of Windows are read, whole or damaged, in bounded time."""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path

import pytest

from dmlprep.core.files import Unfit
from dmlprep.core.files.windows_image import Image, NotAnImage, read_image
from tests.package.images import MACHINES, made_image, put_image

WHOLE = {
    "imports": ["KERNEL32.dll", "onnxruntime.dll"],
    "delayed": ["DirectML.dll", "DXCore.dll"],
    "version": (1, 24, 26, 316),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("library", [True, False])
def test_what_it_says_of_itself(tmp_path: Path, machine: str, library: bool) -> None:
    path = put_image(tmp_path / "a.dll", machine=machine, library=library, **WHOLE)
    imports, delayed = ("kernel32.dll", "onnxruntime.dll"), ("directml.dll", "dxcore.dll")
    wanted = Image(machine, library, imports, delayed, (1, 24, 26, 316))
    assert read_image(path) == wanted
    assert read_image(put_image(tmp_path / "b.dll", machine=machine)) == Image(machine, True, (), (), None)


def test_a_machine_that_is_not_known(tmp_path: Path) -> None:
    raw = bytearray(made_image())
    raw[0x44:0x46] = b"\xc4\x01"
    (tmp_path / "a.dll").write_bytes(raw)
    assert read_image(tmp_path / "a.dll").machine == "0x01c4"


def test_every_cut_is_refused_or_read(tmp_path: Path) -> None:
    raw = made_image(**WHOLE)  # type: ignore[arg-type]
    path = tmp_path / "a.dll"
    for length in range(len(raw) - 12):  # of its last entry only the first 4 of 16 bytes are needed
        path.write_bytes(raw[:length])
        with pytest.raises(NotAnImage):
            read_image(path)


def test_bytes_that_were_changed_end_in_an_answer(tmp_path: Path) -> None:
    whole, dice, path = made_image(**WHOLE), random.Random(16), tmp_path / "a.dll"  # type: ignore[arg-type]
    refused = 0
    for _ in range(1500):
        raw = bytearray(whole)
        for _ in range(dice.randint(1, 6)):
            raw[dice.randrange(len(raw))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        path.write_bytes(raw)
        try:
            read_image(path)
        except NotAnImage:
            refused += 1
    assert 0 < refused < 1500


@pytest.mark.parametrize(
    "kind", ["names that never end", "a table that never ends", "resources that lead to themselves"]
)
def test_tables_without_an_end_are_refused_soon(tmp_path: Path, kind: str) -> None:
    raw = bytearray(made_image(**WHOLE))  # type: ignore[arg-type]
    places = 0x40 + 24 + 112
    if kind == "a table that never ends":
        raw += struct.pack("<5I", 0, 0, 0, 0x1008, 0) * 200_000
        raw[places + 8 : places + 12] = struct.pack("<I", 0x1000 + len(made_image(**WHOLE)) - 0x400)  # type: ignore[arg-type]
    elif kind == "names that never end":
        raw += b"a" * 4_000_000
        raw[places + 8 : places + 12] = struct.pack("<I", 0x1000 + len(made_image(**WHOLE)) - 0x400)  # type: ignore[arg-type]
    else:
        (root,) = struct.unpack_from("<I", raw, places + 16)
        at = root - 0x1000 + 0x400
        raw[at + 20 : at + 24] = struct.pack("<I", 0x80000000)
    section = 0x40 + 24 + 240
    raw[section + 16 : section + 20] = raw[section + 8 : section + 12] = struct.pack("<I", len(raw) - 0x400)
    path = tmp_path / "a.dll"
    path.write_bytes(raw)
    begun = time.perf_counter()
    with pytest.raises(NotAnImage):
        read_image(path)
    assert time.perf_counter() - begun < 1


def test_what_is_no_file_of_windows(tmp_path: Path) -> None:
    (tmp_path / "a.exe").write_bytes(b"#!/bin/sh\n")
    with pytest.raises(NotAnImage, match="not a program or library"):
        read_image(tmp_path / "a.exe")
    with pytest.raises(Unfit, match="folder"):
        read_image(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.exe")
        with pytest.raises(Unfit, match="pipe"):
            read_image(tmp_path / "pipe.exe")
