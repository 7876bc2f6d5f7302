"""Feeds that are no feeds: pipes, devices, headers that promise more than there is."""

from __future__ import annotations

import io
import os
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dmlprep.core.errors import InputError, UsageError
from dmlprep.graph.model import Model
from dmlprep.graph.model.budget import Limits, limited
from dmlprep.parity import load_feeds, make_feeds
from tests.parity.models import parse

TEXT = "g (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }"


def _header(shape: tuple[int, ...]) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return out.getvalue()


@pytest.mark.parametrize("shape", [(4 << 30,), (1 << 62,), (1 << 40, 1 << 40), (3,)])
def test_a_header_that_promises_more_than_there_is(shape: tuple[int, ...], tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(_header(shape) + b"\0" * 8)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", _header(shape) + b"\0" * 8)
    for source in (f"x={tmp_path / 'x.npy'}", str(tmp_path / "x.npz"), str(tmp_path)):
        with pytest.raises(InputError, match="its header announces") as caught:
            load_feeds([source])
        assert caught.value.code == "DP705"


@pytest.mark.parametrize(
    "header",
    [b"{'descr': '<f4', ", b"(" * 60 + b"\n", b"'", b"\xff\xfe", b"{'shape': [[[", b"1L if 1L", b"-" * 9000 + b"1"],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_header_that_is_no_header(header: bytes, version: int, tmp_path: Path) -> None:
    content = b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)) + header
    (tmp_path / "x.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    for source in (f"x={tmp_path / 'x.npy'}", str(tmp_path / "x.npz")):
        with pytest.raises(InputError) as caught:
            load_feeds([source])
        assert caught.value.code == "DP705"


def test_a_version_of_npy_that_nobody_needs(tmp_path: Path) -> None:
    content = b"\x93NUMPY\x03\x00" + struct.pack("<I", len(_header((4 << 30,))[10:])) + _header((4 << 30,))[10:]
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match="named fields"):
        load_feeds([f"x={tmp_path / 'x.npy'}"])


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_an_archive_that_is_broken_within(method: int, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", _header((64,)) + bytes(range(256)))
    whole, codes = path.read_bytes(), []
    places = range(30, whole.index(b"PK\x01\x02"))
    for at in places:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            load_feeds([str(path)])  # a byte may be one that nobody reads
        except InputError as error:
            codes.append(error.code)
    assert set(codes) == {"DP705"}
    assert len(codes) > len(places) / 2


def test_an_archive_that_unpacks_to_more_than_any_feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlprep.parity.feeds.files.FEED_BYTES", 1 << 20)
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros(1 << 20, np.float32))
    assert path.stat().st_size < 1 << 15
    with pytest.raises(InputError, match="at most 1048576 are read"):
        load_feeds([str(path)])


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes and no /dev among files")
def test_feeds_that_have_no_end(tmp_path: Path) -> None:
    for name in ("x.npy", "x.npz", "input_0.pb"):
        folder = tmp_path / name.partition(".")[2]
        folder.mkdir(exist_ok=True)
        os.mkfifo(folder / name)
        with pytest.raises(InputError, match="a pipe"):
            load_feeds([str(folder)])
    for source in ("x=/dev/zero", f"x={tmp_path / 'npy' / 'x.npy'}"):
        with pytest.raises(InputError, match="this is a"):
            load_feeds([source])


def test_sizes_and_numbers_that_nothing_can_hold(tmp_path: Path) -> None:
    model = Model.open(parse(TEXT, tmp_path / "m.onnx"))
    with pytest.raises(UsageError, match="too many elements") as caught:
        make_feeds(model, {"n": 1 << 62})
    assert caught.value.fix
    with pytest.raises(UsageError, match="feeds are too many"):
        make_feeds(model, count=10**20)


def test_inputs_that_there_is_no_room_for(tmp_path: Path) -> None:
    model = Model.open(parse(TEXT, tmp_path / "m.onnx"))
    with pytest.raises(UsageError, match="MiB, at most 512 are allowed") as caught:
        make_feeds(model, {"n": (1 << 31) - 1})
    assert "--limit made_bytes=" in caught.value.fix
    with limited(Limits(made_bytes=1 << 10)):
        model = Model.open(parse(TEXT, tmp_path / "m.onnx"))
    with pytest.raises(UsageError, match="are allowed"):
        make_feeds(model, {"n": 1 << 10})
    assert make_feeds(model, {"n": 4})


def test_a_small_file_that_becomes_large(tmp_path: Path) -> None:
    """The same arrays without compression are no more than their file, and are read."""
    x = np.zeros((1 << 18, 2), np.float32)
    np.savez_compressed(tmp_path / "small.npz", x=x)
    np.savez(tmp_path / "plain.npz", x=x)
    with limited(Limits(made_bytes=1 << 20)):
        assert load_feeds([tmp_path / "plain.npz"])[0]["x"].shape == x.shape
        with pytest.raises(InputError, match="its arrays have 2097280 bytes, at most 1048576 are read") as caught:
            load_feeds([tmp_path / "small.npz"])
    assert "--limit made_bytes=2097280" in caught.value.fix
    assert load_feeds([tmp_path / "small.npz"])[0]["x"].shape == x.shape
