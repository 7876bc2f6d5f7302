"""A file that appears while a command works is not replaced, unless the command may replace files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlprep.core.errors import OutputError
from dmlprep.core.files.writing import Writer, write_file


@pytest.mark.parametrize("count", [1, 3])
def test_without_force_nothing_that_is_there_is_replaced(tmp_path: Path, count: int) -> None:
    names = [f"{number}.txt" for number in range(count)]
    with Writer() as writer:
        for name in names:
            writer.open(tmp_path / name).write(b"new")
        (tmp_path / names[0]).write_text("mine")
        with pytest.raises(OutputError, match="the file exists"):
            writer.commit(force=False)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {names[0]: "mine"}


def test_a_small_file_is_written_once_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_file(path, b"1", force=False)
    with pytest.raises(OutputError, match="the file exists"):
        write_file(path, b"2", force=False)
    assert path.read_bytes() == b"1"
    write_file(path, b"3")
    assert path.read_bytes() == b"3"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
