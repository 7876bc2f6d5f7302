"""One data file for several models."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model.shared_data import SharedData
from dmlprep.graph.model.tensors import MappedTensor


def test_equal_bytes_are_written_once(tmp_path: Path) -> None:
    data = SharedData(tmp_path / "d.data")
    one, other = np.arange(5000, dtype=np.float32), np.arange(7000, dtype=np.float32)
    tensors = [ir.tensor(one, name="a"), ir.tensor(other, name="b"), ir.tensor(one.reshape(50, 100), name="c")]
    offsets = [data.add([tensor])[id(tensor)] for tensor in tensors]
    assert offsets[0] == offsets[2] != offsets[1]
    assert (data.written, data.shared) == (0, one.nbytes)
    raw = data.path.read_bytes()
    assert data.nbytes == len(raw) == offsets[1] + other.nbytes
    assert (raw[: one.nbytes], raw[offsets[1] :]) == (one.tobytes(), other.tobytes())
    assert data.sha256 == hashlib.sha256(raw).hexdigest()


def test_a_tensor_twice_in_one_model_counts_once(tmp_path: Path) -> None:
    data = SharedData(tmp_path / "d.data")
    one = np.ones(5000, np.float32)
    data.add([ir.tensor(one, name="a"), ir.tensor(one.copy(), name="b")])
    assert (data.written, data.shared, data.nbytes) == (one.nbytes, 0, one.nbytes)


def test_what_grew_is_hashed_from_where_it_ended(tmp_path: Path) -> None:
    data = SharedData(tmp_path / "d.data")
    for size in (3000, 3000, 4000):
        data.add([ir.tensor(np.full(size, size, np.float32))])
        assert data.sha256 == hashlib.sha256(data.path.read_bytes()).hexdigest()


def test_a_part_of_the_original_is_read_once(tmp_path: Path) -> None:
    source = tmp_path / "w.bin"
    source.write_bytes(np.arange(3000, dtype=np.float32).tobytes())
    data = SharedData(tmp_path / "d.data")
    told: list[int] = []

    def part() -> MappedTensor:
        return MappedTensor(source, 4000, 8000, ir.DataType.FLOAT, ir.Shape([2000]), "w")

    first, again = part(), part()
    data.add([first], told.append)
    source.unlink()
    data.add([again], told.append)
    assert told == [8000, 8000]
    assert (data.shared, data.nbytes) == (8000, 8000)


def test_no_tensor_makes_no_file(tmp_path: Path) -> None:
    data = SharedData(tmp_path / "d.data")
    assert (data.add([]), data.nbytes, data.path.exists()) == ({}, 0, False)
