"""The installation's own files: packages of libraries, staging of models, layout, what is missing."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dmlprep.core.errors import CheckNotRun, OutputError, UsageError
from dmlprep.runtime import SessionFailure
from dmlprep.runtime.linux import base, rootfs
from dmlprep.runtime.linux import install as installation
from dmlprep.runtime.linux.archive import Package
from dmlprep.runtime.linux.layout import DEFAULT_RELEASE, Layout, native_digest
from dmlprep.runtime.linux.source import AptMirror, Source
from dmlprep.runtime.linux.staging import external_files, stage
from tests.runtime.conftest import save

linux = pytest.mark.skipif(sys.platform == "win32", reason="the runtime is for Linux")


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


@linux
def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "check_machine", lambda: None)
    layout = Layout(tmp_path / "runtime")
    assert "is not installed; run dmlprep runtime install" in installation.missing_piece(layout)
    layout.home.mkdir()
    assert "incomplete" in installation.missing_piece(layout)
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
    for other in ("..", ".", "../..", "/"):
        with pytest.raises(UsageError):
            installation.remove(layout, other)
    assert layout.release("1.24.4").is_dir()
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
    monkeypatch.setattr(installation, "install_into", full)
    with pytest.raises(OutputError, match="No space left"):
        installation.install(Layout(tmp_path), Source(), lambda *_: None)


@linux
def test_a_command_beyond_its_memory_is_not_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLPREP_MEMORY_LIMIT", "60M")
    program = "import time; held = bytearray(200 << 20); time.sleep(60)"
    with pytest.raises(CheckNotRun, match=r"it cannot be compiled: .*60 MiB"):
        installation.run_or_fail([sys.executable, "-c", program], "it cannot be compiled", 60)


@linux
def test_no_mirror_is_a_question_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rootfs, "mirror_of_this_system", AptMirror)
    monkeypatch.setattr(installation, "check_machine", lambda: None)
    with pytest.raises(UsageError, match="--mirror"):
        installation.install(Layout(tmp_path), Source(), lambda *_: None)


@linux
def test_the_cache_folder_is_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Layout.of_user().home == tmp_path / "dmlprep" / "runtime"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert Layout.of_user().home == Path.home() / ".cache" / "dmlprep" / "runtime"


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
    stage(model, tmp_path / "stage", source, ["deep/w.bin"])
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
        external_files(with_data(tmp_path / "m" / "m.onnx", location), tmp_path / "m")


def test_models_that_do_not_fit_on_the_disk_are_not_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "m.onnx").write_bytes(onnx.ModelProto().SerializeToString())
    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(OutputError, match="No space left") as caught:
        stage(tmp_path / "m.onnx", tmp_path / "staged", tmp_path, [])
    assert "TMPDIR" in str(caught.value)


@linux
def test_packages_that_do_not_fit_on_the_disk_are_not_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(installation, "check_machine", lambda: None)
    monkeypatch.setattr(rootfs, "unpack", full)
    package = Package("a", "1", "trixie", "pool/a.deb", 1, "0")
    monkeypatch.setattr(installation, "make_root", lambda *_: rootfs.unpack_all(Layout(tmp_path), [package], _quiet))
    with pytest.raises(OutputError, match="free some space"):
        installation.install(Layout(tmp_path), Source(), _quiet)


def _quiet(_what: str, _done: int, _total: int) -> None:
    pass
