"""Which files a pattern stands for, and that none makes the search endless."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlprep.core.files import Unfit, is_pattern, matching
from tests.system import needs_links


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.onnx", "b.txt", "m/c.onnx", "m/n/d.onnx", "m/.hidden/e.onnx", ".f.onnx", "m[1].onnx"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.onnx", ["a.onnx", "m[1].onnx"]),
        ("m/c.onnx", ["m/c.onnx"]),
        ("m[1].onnx", ["m[1].onnx"]),
        ("[ab].*", ["a.onnx", "b.txt"]),
        ("*/*.onnx", ["m/c.onnx"]),
        ("**/*.onnx", ["a.onnx", "m/c.onnx", "m/n/d.onnx", "m[1].onnx"]),
        ("**/**/d.onnx", ["m/n/d.onnx"]),
        ("m/**", ["m/c.onnx", "m/n/d.onnx"]),
        (".*.onnx", [".f.onnx"]),
        ("m/../a.onnx", ["m/../a.onnx"]),
        ("m", []),
        ("none/*.onnx", []),
        ("a.onnx/*", []),
    ],
)
def test_patterns(folder: Path, pattern: str, found: list[str]) -> None:
    assert [path.relative_to(folder).as_posix() for path in matching(folder, pattern, most=10)] == found


def test_absolute_patterns(folder: Path) -> None:
    assert matching(Path("elsewhere"), str(folder / "*.txt"), most=10) == [folder / "b.txt"]


@pytest.mark.parametrize("pattern", ["", ".", "a\0b"])
def test_what_is_no_pattern(folder: Path, pattern: str) -> None:
    with pytest.raises(Unfit, match="not a file pattern"):
        matching(folder, pattern, most=10)


def test_too_many_files_and_too_many_names(folder: Path) -> None:
    with pytest.raises(Unfit, match="more than 3 files match"):
        matching(folder, "**/*", most=3)
    with pytest.raises(Unfit, match="matches too many"):
        matching(folder, "**/none", most=3, looked_at=5)


def test_a_pattern_of_many_stars_comes_to_its_end(folder: Path) -> None:
    deep = folder
    for number in range(20):
        deep = deep / str(number)
    deep.mkdir(parents=True)
    (deep / "x.onnx").write_text("")
    # 12 ** over 20 folders are 225 million ways.
    found = matching(folder, "/".join(["**"] * 12 + ["x.onnx"]), most=3, looked_at=10_000)
    assert found == [deep / "x.onnx"]


@needs_links
def test_links_to_folders_are_not_followed_by_any_folders(folder: Path) -> None:
    (folder / "m/loop").symlink_to(folder)
    assert len(matching(folder, "**/*.onnx", most=10)) == 4
    assert len(matching(folder, "m/loop/*.onnx", most=10)) == 2


def test_what_is_a_pattern() -> None:
    assert [is_pattern(text) for text in ("a*", "a?", "a[b", "a")] == [True, True, True, False]
