"""A mapped tensor has the values of its file, whole and in pieces, whatever its element type."""

from __future__ import annotations

import io
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from dmlprep.core.errors import InputError
from dmlprep.graph.model import MappedTensor
from dmlprep.graph.model.tensors import as_mapped, chunks, copy_range, write_to

BEFORE = b"\xff" * 5  # values that start at no multiple of their size


def mapped(folder: Path, data: bytes, dtype: ir.DataType, shape: list[int]) -> MappedTensor:
    path = folder / "weights.bin"
    path.write_bytes(BEFORE + data + BEFORE)
    return MappedTensor(path, len(BEFORE), len(data), dtype, ir.Shape(shape), "w")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(12, dtype=np.int64).reshape(3, 4) - 6,
        np.array([[True, False, True]]),
        np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(2, 3),
        np.zeros((0, 4), np.float32),
        np.array(2.5, np.float64),
    ],
    ids=["float32", "int64", "bool", "bfloat16", "empty", "scalar"],
)
def test_values_are_those_of_the_file(array: np.ndarray, tmp_path: Path) -> None:
    tensor = mapped(tmp_path, array.tobytes(), ir.DataType.from_numpy(array.dtype), list(array.shape))
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert tensor.numpy().shape == array.shape
    assert tensor.tobytes() == array.tobytes()
    assert (tensor.size, tensor.nbytes) == (array.size, array.nbytes)
    written = io.BytesIO()
    written.write(tensor.tobytes())
    assert written.getvalue() == array.tobytes()


def test_values_of_four_bits(tmp_path: Path) -> None:
    tensor = mapped(tmp_path, bytes([0x21, 0xF3, 0x08]), ir.DataType.INT4, [5])
    assert tensor.numpy().astype(np.int8).tolist() == [1, 2, 3, -1, -8]
    assert [int(v) for piece in chunks(tensor, 1) for v in piece] == [1, 2, 3, -1, -8]


def test_pieces_are_the_whole_and_no_larger_than_asked_for(tmp_path: Path) -> None:
    array = np.arange(1000, dtype=np.float32).reshape(10, 100)
    for tensor in (mapped(tmp_path, array.tobytes(), ir.DataType.FLOAT, [10, 100]), ir.tensor(array)):
        pieces = list(chunks(tensor, 1024))
        assert max(piece.nbytes for piece in pieces) <= 1024
        np.testing.assert_array_equal(np.concatenate(pieces), array.reshape(-1))


def test_elements_in_the_middle(tmp_path: Path) -> None:
    array = np.arange(100, dtype=np.int32)
    tensor = mapped(tmp_path, array.tobytes(), ir.DataType.INT32, [100])
    np.testing.assert_array_equal(tensor.elements(37, 41), [37, 38, 39, 40])
    assert tensor.elements(5, 5).size == 0


def test_tensors_are_written_one_behind_the_other(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32)
    with open(tmp_path / "out.bin", "wb") as file:
        file.write(b"head")
        write_to(mapped(tmp_path, array.tobytes(), ir.DataType.FLOAT, [6]), file)
        write_to(ir.tensor(array + 1), file)
    assert (tmp_path / "out.bin").read_bytes() == b"head" + array.tobytes() + (array + 1).tobytes()


def test_a_file_that_has_become_shorter_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"12345")
    with open(tmp_path / "out.bin", "wb") as file, pytest.raises(InputError, match="ended 5 bytes early"):
        copy_range(tmp_path / "weights.bin", 2, 8, file)
    tensor = mapped(tmp_path, b"12345678", ir.DataType.FLOAT, [2])
    os.truncate(tensor.path, len(BEFORE) + 3)
    for read in (tensor.numpy, tensor.tobytes, lambda: tensor.elements(1, 2)):
        with pytest.raises(InputError, match="ended 5 bytes early"):
            read()


def test_only_what_lies_in_a_file_is_mapped(tmp_path: Path) -> None:
    tensor = mapped(tmp_path, b"\0" * 8, ir.DataType.FLOAT, [2])
    assert as_mapped(tensor) is tensor
    assert as_mapped(ir.tensor(np.zeros(2, np.float32))) is None
