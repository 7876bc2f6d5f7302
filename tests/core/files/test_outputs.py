"""Where an output can go: names, lengths, folders."""

from __future__ import annotations

import sys
from pathlib import Path, PureWindowsPath

import pytest

from dmlprep.core.errors import OutputError, UsageError
from dmlprep.core.files import check_output, check_path
from dmlprep.core.files.outputs import file_name_problem, stem_of, windows_problem
from tests.system import needs_links


@pytest.mark.parametrize(
    "path",
    [
        r"C:\models\out put\model.onnx",
        r"\\server\share\out\model.onnx",
        r"\\?\C:\models\model.onnx",
        r"\\?\UNC\server\share\model.onnx",
        r"C:\a\..\b\.\model.onnx",
        r"C:\Модели\重み\model.onnx",
        r"C:\console\auxiliary\nullable.onnx",
        r"C:\com10\model.onnx",
        "C:\\" + "x" * 200 + "\\" + "y" * 55,
    ],
)
def test_paths_that_windows_takes(path: str) -> None:
    assert windows_problem(PureWindowsPath(path), long_paths=False) == ("", "")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (r"C:\out\NUL", "'NUL' is the name of a device"),
        (r"C:\con\model.onnx", "'con' is the name of a device"),
        (r"C:\out\AUX.onnx", "'AUX.onnx' is the name of a device"),
        (r"C:\out\com1 .onnx", "device"),
        (r"C:\out\LPT².onnx", "device"),
        (r"\\server\share\prn\m.onnx", "'prn' is the name of a device"),
        (r"\\?\C:\nul\m.onnx", "'nul' is the name of a device"),
        (r"C:\out\model.onnx:stream", "has a colon"),
        (r"C:\out\what?.onnx", "has '?'"),
        (r"C:\out\a<b.onnx", "has '<'"),
        (r"C:\out.\model.onnx", "ends with a dot or a space"),
        (r"C:\out \model.onnx", "ends with a dot or a space"),
        ("C:\\" + "x" * 256, "Windows allows at most 255"),
        ("C:\\" + "x" * 200 + "\\" + "y" * 56, "too long for Windows: 260 characters, at most 259"),
        # A character beyond the first plane is two for Windows.
        ("C:\\" + "x" * 200 + "\\" + "y" * 54 + "\U0001f600", "260 characters"),
    ],
)
def test_paths_that_windows_does_not_take(path: str, said: str) -> None:
    what, fix = windows_problem(PureWindowsPath(path), long_paths=False)
    assert said in what
    assert fix


def test_folders_are_shorter_and_long_paths_lift_the_limit() -> None:
    folder = PureWindowsPath("C:\\" + "x" * 200 + "\\" + "y" * 44)
    assert "at most 247" in windows_problem(folder, long_paths=False, folder=True)[0]
    assert "enable long paths" in windows_problem(folder, long_paths=False, folder=True)[1]
    assert windows_problem(folder, long_paths=True, folder=True) == ("", "")
    assert windows_problem(PureWindowsPath("\\\\?\\" + str(folder)), long_paths=False, folder=True) == ("", "")


@pytest.mark.parametrize("name", ["x" * 256, "я" * 128])
def test_names_that_are_too_long(name: str, tmp_path: Path) -> None:
    if sys.platform == "win32" and len(name) < 255:
        pytest.skip("Windows counts characters, not bytes")
    with pytest.raises(OutputError, match="255") as refused:
        check_path(tmp_path / name)
    assert refused.value.fix
    check_path(tmp_path / name[:127])


@pytest.mark.skipif(sys.platform != "win32", reason="names of Windows")
@pytest.mark.parametrize("name", ["NUL", "aux.html", "report:b.html", "a?.html", "a. "])
def test_names_that_only_windows_does_not_take(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        check_output(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "win32", reason="extended paths of Windows")
def test_an_extended_path_has_no_limit(tmp_path: Path) -> None:
    deep = Path("\\\\?\\" + str(tmp_path)) / ("x" * 120) / ("y" * 120)
    deep.mkdir(parents=True)
    check_output(deep / "report.html")


def test_an_output_that_is_fine_leaves_nothing(tmp_path: Path) -> None:
    check_output(tmp_path / "report of today.html")
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    (tmp_path / "folder").mkdir()
    for path, said in (
        (tmp_path / "there", "the file exists"),
        (tmp_path / "folder", "this is a folder"),
        (tmp_path / "none" / "file", "its folder does not exist"),
        (tmp_path / "there" / "file", "its folder does not exist"),
    ):
        with pytest.raises(OutputError, match=said) as refused:
            check_output(path)
        assert refused.value.exit_code == 2
        assert refused.value.where == str(path)
        assert refused.value.fix
    check_output(tmp_path / "there", force=True)


@pytest.mark.skipif(sys.platform != "linux", reason="devices and /proc are Linux'")
def test_what_takes_no_files() -> None:
    with pytest.raises(OutputError, match="not a regular file"):
        check_output(Path("/dev/null"), force=True)
    with pytest.raises(OutputError, match="cannot be written"):
        check_output(Path("/proc/report.html"))


@pytest.mark.skipif(sys.platform != "win32", reason="only Windows keeps open files in their place")
def test_an_output_that_is_open_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with path.open(), pytest.raises(OutputError, match="is open in another program") as refused:
        check_output(path, force=True)
    assert "close it there" in refused.value.fix
    check_output(path, force=True)


@pytest.mark.parametrize("name", ["model.onnx", "...onnx", ".hidden", "a b", "é", "x" * 255])
def test_names_of_files(name: str) -> None:
    assert file_name_problem(name) == ""


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/a", "a\\b", "a\0b", "a:b", "nul", "COM1.txt", "a.", "a ", "a?", "x" * 256]
)
def test_no_names_of_files(name: str) -> None:
    assert file_name_problem(name)


@pytest.mark.parametrize("name", ["...onnx", "..onnx", "models/...onnx"])
def test_a_stem_that_is_another_folder_is_refused(name: str) -> None:
    if Path(name).stem not in (".", ".."):
        pytest.skip("this version of Python gives it another stem")
    with pytest.raises(UsageError, match="a result cannot have this name") as refused:
        stem_of(Path(name))
    assert refused.value.exit_code == 2


def test_a_stem_is_the_name_without_its_suffix() -> None:
    assert [stem_of(Path(name)) for name in ("a/net.onnx", "net.v2.onnx", ".onnx", "a..b.onnx")] == [
        "net", "net.v2", ".onnx", "a..b",
    ]  # fmt: skip


@needs_links
def test_a_link_to_nothing_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out.html").symlink_to(tmp_path / "missing")
    with pytest.raises(OutputError, match="not a regular file"):
        check_output(tmp_path / "out.html")
