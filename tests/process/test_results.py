"""What a worker left is read as what it may be, not as what it should be."""

from __future__ import annotations

import itertools
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dmlprep.process.results import open_result, read_result
from dmlprep.process.wire import numpy_dtype, read_tensor, write_tensor
from tests.system import needs_links, not_on_windows

SECRET = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize("text", [b"\xff", b"a\0b", "a\0b", "\ud800"])
def test_text_that_a_session_would_see_changed_is_refused(tmp_path: Path, text: bytes | str) -> None:
    with pytest.raises(ValueError, match=r"NUL|utf-8"):
        write_tensor(tmp_path / "t", np.array([text], object))


@pytest.mark.parametrize("kind", ["float32", "bool", "complex64", "bfloat16", "float8_e4m3fn", "string"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_what_is_written_is_read(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    array = np.array(["ž", "", "c"] * 2)[:count].reshape(shape).astype(object)
    if kind != "string":
        array = np.arange(count).reshape(shape).astype(numpy_dtype(kind))
    write_tensor(tmp_path / "t", array)
    found = read_tensor(tmp_path / "t", kind, shape)
    assert found.shape == shape
    assert found.dtype == array.dtype
    assert found.tolist() == array.tolist()
    found[...] = array  # it is the reader's own


def _link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def _link_to_link(path: Path, secret: Path) -> None:
    path.with_name("between").symlink_to(secret)
    path.symlink_to("between")


def _folder(path: Path, _secret: Path) -> None:
    path.mkdir()


def _fifo(path: Path, _secret: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path, _secret: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def _device(path: Path, _secret: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes device files")
    os.mknod(path, 0o020600, os.makedev(1, 5))  # /dev/zero


@not_on_windows("FIFOs and links are made otherwise there, and no worker is a stranger")
@pytest.mark.parametrize("plant", [_link, _link_to_link, _folder, _fifo, _socket, _device])
@pytest.mark.parametrize("mapped", [False, True])
def test_what_is_no_plain_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path, Path], None], mapped: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tensor(tmp_path / "secret", SECRET)
    plant(tmp_path / "out1", tmp_path / "secret")
    with pytest.raises((OSError, ValueError)):
        read_tensor(tmp_path / "out1", "float32", (6,), mapped=mapped)
    with pytest.raises((OSError, ValueError)):
        read_tensor(tmp_path / "out1", "string", (6,), mapped=mapped)
    with pytest.raises((OSError, ValueError)):
        read_result(tmp_path / "out1", 1 << 20)


@needs_links
def test_a_link_to_nowhere_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "out1").symlink_to(tmp_path / "gone")
    with pytest.raises(OSError), open_result(tmp_path / "out1"):  # noqa: PT011 - one of two, by the system
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="files with holes")
def test_no_more_is_read_than_was_said(tmp_path: Path) -> None:
    path = tmp_path / "out1"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no room
    with pytest.raises(ValueError, match="needs 24"):
        read_tensor(path, "float32", (6,))
    with pytest.raises(ValueError, match="at most 1048576"):
        read_tensor(path, "uint8", (1 << 40,), limit=1 << 20)
    with pytest.raises(ValueError, match="at most"):
        read_tensor(path, "uint8", (1 << 40,))
    for kind in ("string", "uint8"):
        with pytest.raises(ValueError, match="at most"):
            read_tensor(path, kind, (1 << 40,), limit=1 << 20)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        *(("float32", shape) for shape in [(-1,), (-2, -3), (1 << 62, 4), (1 << 32, 1 << 32), (1 << 32, 1 << 32, 0)]),
        *((kind, (6,)) for kind in ["object", "O", "V4", "f4,f4", "datetime64", "finfo", "str", "", "<f4", "float8"]),
        ("float32", (1,) * 70 + (6,)),
    ],
)
def test_tensors_that_there_cannot_be(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    write_tensor(tmp_path / "out1", SECRET)
    with pytest.raises((ValueError, TypeError)):
        read_tensor(tmp_path / "out1", kind, shape)


@not_on_windows("no worker is a stranger there")
def test_a_file_that_is_cut_short_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out1"
    write_tensor(path, SECRET)
    fstat, looks = os.fstat, itertools.count(1)

    def then_shorter(file: int) -> os.stat_result:
        found = fstat(file)
        if next(looks) == 2:  # is it a plain file, how long is it
            os.truncate(path, 5)
        return found

    monkeypatch.setattr(os, "fstat", then_shorter)
    with pytest.raises(ValueError, match="truncated"):
        read_tensor(path, "float32", (6,))
