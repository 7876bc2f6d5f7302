"""The installation's own files: packages of libraries, staging of models, layout, what is missing."""

from __future__ import annotations

import errno
import io
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dmlprep.errors import CheckNotRun, InputError, OutputError, UsageError
from dmlprep.runtime import SessionFailure
from dmlprep.runtime.linux import base, sandbox
from dmlprep.runtime.linux import install as installation
from dmlprep.runtime.linux.archive import Package
from dmlprep.runtime.linux.layout import DEFAULT_RELEASE, Layout, native_digest
from dmlprep.runtime.linux.staging import external_files, stage
from dmlprep.runtime.linux.wheel import fetch_release, known_digests, unpack_libraries
from tests.runtime.conftest import save

linux = pytest.mark.skipif(sys.platform == "win32", reason="the runtime is for Linux")


def wheel(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return path


def test_libraries_of_a_wheel(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for version in ("1.19.2", "1.24.4", "1.9.0"):
        file = wheel(
            tmp_path / f"onnxruntime_directml-{version}-cp311-cp311-win_amd64.whl",
            "onnxruntime/capi/onnxruntime.dll",
            "onnxruntime/capi/DirectML.dll",
            "onnxruntime/capi/onnxruntime_pybind11_state.pyd",
            "onnxruntime/LICENSE",
        )
        assert unpack_libraries(file, layout.releases) == version
    assert layout.installed() == ["1.24.4", "1.19.2", "1.9.0"]
    assert sorted(p.name for p in layout.release("1.24.4").iterdir()) == [
        "DirectML.dll",
        "LICENSE",
        "onnxruntime.dll",
        "piece.json",
    ]
    piece = json.loads((layout.release("1.24.4") / "piece.json").read_text())
    assert set(piece["libraries"]) == {"onnxruntime.dll", "DirectML.dll"}


def test_a_wheel_of_windows_ml_is_its_release_without_the_time_of_its_build(tmp_path: Path) -> None:
    file = wheel(
        tmp_path / "onnxruntime_windowsml-1.30.0.202609102321-cp311-cp311-win_amd64.whl",
        "onnxruntime/capi/onnxruntime.dll",
        "onnxruntime/capi/DirectML.dll",
    )
    assert unpack_libraries(file, tmp_path / "releases") == "1.30.0"
    piece = json.loads((tmp_path / "releases" / "1.30.0" / "piece.json").read_text())
    assert piece["package"]["file"] == file.name


def test_the_release_for_a_version(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert layout.release_for("1.30.0") == ""
    for version in ("1.30.0", "1.28.3", "1.24.4"):
        layout.release(version).mkdir(parents=True)
        (layout.release(version) / "piece.json").write_text('{"libraries": {}}')
    assert layout.release_for() == DEFAULT_RELEASE
    assert [layout.release_for(v) for v in ("1.24.4", "1.28.0", "1.20.1")] == ["1.24.4", "1.28.3", DEFAULT_RELEASE]
    shutil.rmtree(layout.release(DEFAULT_RELEASE))
    assert layout.release_for() == "1.28.3"


def index(monkeypatch: pytest.MonkeyPatch, packages: dict[str, str]) -> list[str]:
    """Put these packages (requirement -> file) in place of pip's and npm's index; what is asked for is noted."""
    asked: list[str] = []

    def fetch(command: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        wanted = command[-1]
        asked.append(wanted)
        folder = Path(command[command.index("--pack-destination" if command[0] == "npm" else "--dest") + 1])
        if wanted not in packages:
            return subprocess.CompletedProcess(command, 1, "", f"ERROR: No matching distribution found for {wanted}")
        (folder / packages[wanted]).write_bytes(b"")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("subprocess.run", fetch)
    return asked


@pytest.mark.parametrize(
    ("version", "wanted", "file"),
    [
        ("1.24.4", "onnxruntime-directml==1.24.4", "onnxruntime_directml-1.24.4-cp311-cp311-win_amd64.whl"),
        ("1.23.2", "onnxruntime-windowsml==1.23.2.*", "onnxruntime_windowsml-1.23.2.2025-cp311-cp311-win_amd64.whl"),
        ("1.30.0", "onnxruntime-windowsml==1.30.0.*", "onnxruntime_windowsml-1.30.0.2026-cp311-cp311-win_amd64.whl"),
        ("1.30.0.2026", "onnxruntime-windowsml==1.30.0.2026", "onnxruntime_windowsml-1.30.0.2026-cp3-win_amd64.whl"),
        ("1.29.0", "onnxruntime-node@1.29.0", "onnxruntime-node-1.29.0.tgz"),
        ("1.18.0", "onnxruntime-node@1.18.0", "onnxruntime-node-1.18.0.tgz"),
    ],
)
def test_the_package_that_has_a_release_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, wanted: str, file: str
) -> None:
    asked = index(monkeypatch, {wanted: file})
    monkeypatch.setattr("dmlprep.runtime.linux.wheel.known_digests", dict)
    assert fetch_release(version, tmp_path, lambda *_: None) == tmp_path / file
    assert asked[-1] == wanted


def test_a_package_with_another_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = next(name for name in known_digests() if "windowsml-1.30" in name)
    index(monkeypatch, {"onnxruntime-windowsml==1.30.0.*": file})
    with pytest.raises(CheckNotRun, match="another content: SHA-256 e3b0c44298fc1c14"):
        fetch_release("1.30.0", tmp_path, lambda *_: None)
    assert not (tmp_path / file).exists()


def test_a_release_that_no_package_has_names_all_that_were_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(monkeypatch, {})
    with pytest.raises(CheckNotRun, match=r"onnxruntime-windowsml 1\.99\.0.*onnxruntime-node 1\.99\.0") as caught:
        fetch_release("1.99.0", tmp_path, lambda *_: None)
    assert "--wheel FILE" in str(caught.value)


def test_libraries_of_an_npm_package(tmp_path: Path) -> None:
    file = tmp_path / "onnxruntime-node-1.18.0.tgz"
    with tarfile.open(file, "w:gz") as tar:
        for name in ("win32/x64/onnxruntime.dll", "win32/x64/DirectML.dll", "win32/arm64/onnxruntime.dll"):
            tar.addfile(tarfile.TarInfo(f"package/bin/napi-v3/{name}"), io.BytesIO())
    assert unpack_libraries(file, tmp_path / "releases") == "1.18.0"


@pytest.mark.parametrize(
    ("name", "files", "text"),
    [
        ("onnxruntime-1.24.4-win_amd64.whl", ["onnxruntime/capi/onnxruntime.dll"], "not a package"),
        ("onnxruntime_directml-1.18.1-x-win_amd64.whl", ["onnxruntime/capi/DirectML.dll"], "no onnxruntime.dll"),
        ("onnxruntime_directml-1.24.4-x-win_amd64.whl", None, "cannot be read"),
    ],
)
def test_packages_that_are_refused(tmp_path: Path, name: str, files: list[str] | None, text: str) -> None:
    path = tmp_path / name
    if files is None:
        path.write_bytes(b"no archive")
    else:
        wheel(path, *files)
    with pytest.raises(InputError, match=text):
        unpack_libraries(path, tmp_path / "releases")
    assert not list((tmp_path / "releases").glob("*"))


@pytest.mark.parametrize("version", ["latest", "1.24.4; rm", "1.15.1"])
def test_releases_that_cannot_be_had(tmp_path: Path, version: str) -> None:
    with pytest.raises(UsageError):
        fetch_release(version, tmp_path, lambda *_: None)


@linux
def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "check_machine", lambda: None)
    layout = Layout(tmp_path / "runtime")
    assert "is not installed; run dmlprep runtime install" in installation.missing_piece(layout)
    layout.home.mkdir()
    assert "not finished" in installation.missing_piece(layout)
    for folder in (layout.root, layout.built, layout.prefix):
        folder.mkdir()
    manifest = {"packages": [], "native": "old", "prefix": True}
    layout.manifest.write_text(json.dumps(manifest))
    assert "another release of dmlprep" in installation.missing_piece(layout)
    layout.manifest.write_text(json.dumps({**manifest, "native": native_digest()}))
    assert "another release of dmlprep" in installation.missing_piece(layout), "its packages are of another list"
    layout.manifest.write_text(json.dumps({**manifest, "native": native_digest(), "base": base.digest()}))
    assert "no release of ONNX Runtime" in installation.missing_piece(layout)
    layout.release("1.24.4").mkdir(parents=True)
    (layout.release("1.24.4") / "piece.json").write_text('{"libraries": {}}')
    assert installation.missing_piece(layout) == ""
    assert "--release 1.20.1" in installation.missing_piece(layout, "1.20.1")
    before = installation.fingerprint(layout, "1.24.4")
    (layout.release("1.24.4") / "piece.json").write_text('{"other": 1}')
    assert installation.fingerprint(layout, "1.24.4") != before
    with pytest.raises(UsageError):
        installation.remove(layout, "../..")
    assert installation.remove(layout, "1.24.4")
    assert installation.remove(layout) == [layout.home]
    assert not layout.home.exists()
    assert installation.remove(layout) == []


def test_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation.platform, "machine", lambda: "aarch64")
    with pytest.raises(CheckNotRun, match="aarch64"):
        installation.check_machine()


@linux
def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(installation, "check_machine", lambda: None)
    monkeypatch.setattr(installation, "_install", full)
    with pytest.raises(OutputError, match="No space left"):
        installation.install(Layout(tmp_path), installation.Source(), lambda *_: None)


@linux
def test_no_mirror_is_a_question_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "mirror_of_this_system", lambda: "")
    monkeypatch.setattr(installation, "check_machine", lambda: None)
    with pytest.raises(UsageError, match="--mirror"):
        installation.install(Layout(tmp_path), installation.Source(), lambda *_: None)


@linux
def test_the_cache_folder_is_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Layout.of_user().home == tmp_path / "dmlprep" / "runtime"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert Layout.of_user().home == Path.home() / ".cache" / "dmlprep" / "runtime"


def test_the_sandbox_mounts_what_it_is_given(tmp_path: Path) -> None:
    line = sandbox.command(tmp_path, ["/usr/bin/true"], read={"/models": tmp_path}, environment={"A": "b"})
    text = " ".join(line)
    assert "--unshare-all" in line
    assert "--die-with-parent" in line
    assert f"--ro-bind {tmp_path} /models" in text
    assert "--setenv A b" in text
    assert text.endswith("-- /usr/bin/true")


def with_data(path: Path, location: str) -> Path:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    inner = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["i"])],
        "then",
        [],
        [helper.make_tensor_value_info("i", TensorProto.FLOAT, [4])],
        [weight],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    return save(path, [node], [condition], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])


def test_staging(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep/w.bin").write_bytes(np.ones(4, np.float32).tobytes())
    (source / "private").write_text("not for the worker")
    model = with_data(source / "model x.onnx", "deep/w.bin")
    assert external_files(model, source) == ["deep/w.bin"]
    stage(model, tmp_path / "stage", source)
    found = sorted(p.relative_to(tmp_path / "stage").as_posix() for p in (tmp_path / "stage").rglob("*") if p.is_file())
    assert found == ["deep/w.bin", "model.onnx"]
    assert onnx.load(tmp_path / "stage/model.onnx").graph.node[0].op_type == "If"


@pytest.mark.parametrize(
    ("location", "text"), [("../w", "outside"), ("/etc/passwd", "outside"), ("gone.bin", "missing")]
)
def test_staging_stays_inside(tmp_path: Path, location: str, text: str) -> None:
    (tmp_path / "w").write_bytes(b"")
    (tmp_path / "m").mkdir()
    with pytest.raises(SessionFailure, match=text):
        stage(with_data(tmp_path / "m" / "m.onnx", location), tmp_path / "stage", tmp_path / "m")


def test_models_that_do_not_fit_on_the_disk_are_not_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "m.onnx").write_bytes(onnx.ModelProto().SerializeToString())
    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(OutputError, match="No space left") as caught:
        stage(tmp_path / "m.onnx", tmp_path / "staged", tmp_path)
    assert "TMPDIR" in str(caught.value)


@linux
def test_packages_that_do_not_fit_on_the_disk_are_not_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(installation, "check_machine", lambda: None)
    monkeypatch.setattr(installation, "unpack", full)
    package = Package("a", "1", "trixie", "pool/a.deb", 1, "0")
    monkeypatch.setattr(
        installation, "_make_root", lambda *_: installation._unpack_all(Layout(tmp_path), [package], _quiet)
    )
    with pytest.raises(OutputError, match="make room"):
        installation.install(Layout(tmp_path), installation.Source(), _quiet)


def _quiet(_what: str, _done: int, _total: int) -> None:
    pass
