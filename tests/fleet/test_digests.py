"""Files are read again only where the file system says that they are other ones."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from dmlprep.fleet.digests import Digests


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file that was last changed long ago."""
    path = tmp_path / "model"
    path.write_bytes(b"contents")
    os.utime(path, (1_000_000, 1_000_000))
    return path


def _age(monkeypatch: pytest.MonkeyPatch) -> None:
    """ctime cannot be set back: every file is old enough."""
    monkeypatch.setattr("dmlprep.fleet.digests._YOUNG", -(1 << 62))


def test_a_known_file_is_not_read(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _age(monkeypatch)
    kept = tmp_path / "digests.json"
    first = Digests(kept)
    assert first.of(old) == hashlib.sha256(b"contents").hexdigest()
    first.of(old)
    assert first.read == 1
    first.save()
    again = Digests(kept)
    assert again.of(old) == first.of(old)
    assert again.read == 0
    old.write_bytes(b"contentS")
    assert again.of(old) == hashlib.sha256(b"contentS").hexdigest()
    old.unlink()
    with pytest.raises(FileNotFoundError):
        again.of(old)


def test_a_file_of_this_very_moment_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"a")
    first = Digests(tmp_path / "digests.json")
    first.of(path)
    first.save()
    again = Digests(tmp_path / "digests.json")
    again.of(path)
    assert again.read == 1


@pytest.mark.skipif(sys.platform == "win32", reason="st_ctime is the time of creation there")
def test_a_time_that_was_set_back_hides_nothing(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _age(monkeypatch)
    first = Digests(tmp_path / "digests.json")
    first.of(old)
    first.save()
    old.write_bytes(b"CONTENTS")
    os.utime(old, (1_000_000, 1_000_000))
    assert Digests(tmp_path / "digests.json").of(old) == hashlib.sha256(b"CONTENTS").hexdigest()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format": 9, "files": {}}', b'{"format": 1, "files": [1]}'])
def test_a_broken_list_is_as_none(text: bytes, old: Path, tmp_path: Path) -> None:
    (tmp_path / "digests.json").write_bytes(text)
    found = Digests(tmp_path / "digests.json")
    assert found.of(old) == hashlib.sha256(b"contents").hexdigest()
    found.save()
    assert (tmp_path / "digests.json").read_bytes() != text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes among files")
def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        Digests().of(tmp_path / "pipe")


def test_a_list_that_cannot_be_written_costs_time_only(old: Path, tmp_path: Path) -> None:
    found = Digests(tmp_path / "no" / "such" / "folder")
    found.of(old)
    found.save()


def test_others_stay_in_the_list(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _age(monkeypatch)
    other = tmp_path / "other"
    other.write_bytes(b"o")
    kept = tmp_path / "digests.json"
    for path in (old, other):
        found = Digests(kept)
        found.of(path)
        found.save()
    last = Digests(kept)
    last.of(old)
    last.of(other)
    assert last.read == 0


@pytest.mark.skipif(sys.platform == "win32", reason="names are UTF-16 on Windows")
def test_a_file_whose_name_is_not_utf_8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _age(monkeypatch)
    files = [tmp_path / os.fsdecode(b"a\xff"), tmp_path / "b"]
    for path in files:
        path.write_bytes(b"contents")
    first = Digests(tmp_path / "digests.json")
    assert len({first.of(path) for path in files}) == 1
    first.save()
    again = Digests(tmp_path / "digests.json")
    assert again.of(files[1]) == again.of(files[0])
    assert again.read == 1  # the other one is read again
