"""Files that somebody gave: plain, of a size, and documents that can be walked."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dmlprep.core.files import NotToml, Unfit, check_document, check_plain, parse_toml, read_given, read_text
from dmlprep.core.files.bounded_read import MAX_DEPTH

_posix = pytest.mark.skipif(sys.platform == "win32", reason="no named pipes and no /dev among files")


@_posix
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unfit, match="a pipe") as caught:
        read_given(tmp_path / "pipe")
    assert caught.value.fix


@_posix
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_has_no_end(path: str) -> None:
    with pytest.raises(Unfit, match="a device"):
        read_text(Path(path))


def test_a_folder_and_a_file_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 2048)
    with pytest.raises(Unfit, match="a folder"):
        read_given(tmp_path)
    with pytest.raises(Unfit, match="it has 2 KiB, at most 1 KiB are read"):
        read_given(tmp_path / "f", 1024)
    assert read_given(tmp_path / "f", 2048) == b"x" * 2048
    assert check_plain(tmp_path / "f", None) == 2048


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files of unknown length are Linux'")
def test_a_file_that_says_it_is_empty_and_is_not() -> None:
    with pytest.raises(Unfit, match="at most 4 bytes"):
        read_given(Path("/proc/self/status"), 4)


@pytest.mark.parametrize(
    "text",
    [
        "v = " + "[" * 5000,
        "v = " + "[" * 5000 + "]" * 5000,
        "v = " + "{a=" * 5000,
        ".".join(["a"] * 3000) + " = 1",
        "[" + ".".join(["a"] * 3000) + "]",
        "v = " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
    ],
)
def test_a_document_that_is_too_deep(text: str) -> None:
    with pytest.raises(Unfit, match="more than 32 deep"):
        parse_toml(text)


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000, "18446744073709551616", "-9223372036854775809"])
def test_a_number_that_is_too_long(number: str) -> None:
    with pytest.raises(Unfit, match="more than 64 bits"):
        parse_toml(f"v = [{number}]")


def test_what_is_no_toml_and_what_is() -> None:
    with pytest.raises(NotToml, match="Invalid value"):
        parse_toml("v = ")
    with pytest.raises(Unfit, match="zero"):
        parse_toml('v = "a\\u0000b"')
    assert parse_toml("v = [9223372036854775807, 1.5]\na.b.c = true") == {
        "v": [9223372036854775807, 1.5],
        "a": {"b": {"c": True}},
    }
    check_document({"a": [{"b": None}] * 3})


@pytest.mark.parametrize("depth", [0, 1, MAX_DEPTH - 1])
@pytest.mark.parametrize("value", ["a\0b", 1 << 70])
def test_a_value_is_checked_at_every_depth(value: object, depth: int) -> None:
    for _ in range(depth + 1):
        value = [value]
    with pytest.raises(Unfit):
        check_document(value)
