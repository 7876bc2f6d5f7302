"""Damage of an installation is named; what is in use is not removed; a cache folder may be read-only or missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dmlprep.core.errors import CheckNotRun, InputError
from dmlprep.runtime import SessionFailure, dml, dml_status
from dmlprep.runtime.linux import base, install_locks, inventory
from dmlprep.runtime.linux import install as installation
from dmlprep.runtime.linux.host import LinuxHost
from dmlprep.runtime.linux.layout import Layout, native_digest
from dmlprep.runtime.linux.safe_fs import LeadsOut
from dmlprep.runtime.linux.source import Source

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the runtime is for Linux")

DLL = '{"libraries": {"DirectML.dll": "0"}}'


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """An installation of small files, whole and written down, in a folder with a space and an umlaut."""
    monkeypatch.setattr(installation, "check_machine", lambda: None)
    made = Layout(tmp_path / "cache folder ü" / "runtime")
    for folder in (made.root / "usr/lib", made.built, made.prefix, made.release("1.24.4")):
        folder.mkdir(parents=True)
    (made.root / "usr/lib/libvulkan.so").write_bytes(b"driver")
    (made.root / "lib").symlink_to("usr/lib")
    (made.built / "host.exe").write_bytes(b"host")
    (made.prefix / "system.reg").write_bytes(b"registry")
    (made.release("1.24.4") / "DirectML.dll").write_bytes(b"library")
    (made.release("1.24.4") / "piece.json").write_text(DLL)
    manifest = {"base": base.digest(), "native": native_digest(), "packages": [], "prefix": True}
    made.manifest.write_text(json.dumps(manifest))
    for piece, folder in inventory.pieces(made).items():
        inventory.record(made, piece, folder)
    return made


def damaged(layout: Layout, *, contents: bool = False) -> dict[str, str]:
    return inventory.damage(layout, inventory.pieces(layout), contents=contents)


def test_what_is_whole_is_whole(layout: Layout) -> None:
    assert damaged(layout, contents=True) == {}
    assert installation.missing_piece(layout) == ""


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"packages": [], "prefix": true, "native": 1' + "0" * 5000 + "}",
        '{"packages": 5, "prefix": true}',
        '{"packages": [{"name": 5}], "prefix": true}',
        '{"packages": [], "prefix": true, "signatures": [1]}',
    ],
    ids=["lists", "objects", "number", "packages", "package", "signatures"],
)
def test_a_manifest_that_is_none_is_not_there(text: str, layout: Layout) -> None:
    layout.manifest.write_text(text)
    assert "the installation of the runtime is incomplete" in installation.missing_piece(layout)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"libraries": {}, "package": ' + "[" * 100_000])
def test_notes_of_pieces_that_are_none_are_not_there(text: str, layout: Layout) -> None:
    (layout.release("1.24.4") / "piece.json").write_text(text)
    assert "no release of ONNX Runtime" in installation.missing_piece(layout)
    for path in layout.inventories.iterdir():
        path.write_text(text)
    assert damaged(layout) == {}


def test_what_is_cut_short_or_lost_is_named(layout: Layout) -> None:
    (layout.release("1.24.4") / "DirectML.dll").write_bytes(b"lib")
    (layout.root / "usr/lib/libvulkan.so").unlink()
    (layout.root / "lib").unlink()
    (layout.root / "lib").symlink_to("elsewhere")
    assert damaged(layout) == {
        "root": "root/lib points to another place, and 1 more",
        "release 1.24.4": "1.24.4/DirectML.dll has 3 bytes instead of 7",
    }
    reason = installation.missing_piece(layout)
    assert "the runtime is damaged: root/lib points to another place" in reason
    assert "run dmlprep runtime install" in reason


def test_the_remedy_for_a_release_names_it(layout: Layout) -> None:
    (layout.release("1.24.4") / "DirectML.dll").write_bytes(b"lib")
    assert installation.missing_piece(layout).endswith("; run dmlprep runtime install --release 1.24.4 to repair it")


def test_other_contents_are_seen_by_reading(layout: Layout) -> None:
    before = installation.fingerprint(layout, "1.24.4")
    path = layout.built / "host.exe"
    path.write_bytes(b"tsoh")
    os.utime(path, (1, 1))
    assert damaged(layout) == {}
    assert damaged(layout, contents=True) == {"native": "native/host.exe has other contents"}
    assert installation.fingerprint(layout, "1.24.4") != before, "the self-test must run again"


def test_a_list_that_is_not_there_claims_nothing(layout: Layout) -> None:
    (layout.built / "host.exe").unlink()
    inventory.forget(layout, "native")
    assert damaged(layout) == {}
    (layout.inventories / "native.json").write_text("garbage")
    assert damaged(layout) == {}


def test_a_release_whose_last_file_is_garbage_does_not_stand_there(layout: Layout) -> None:
    (layout.release("1.24.4") / "piece.json").write_text("{")
    assert layout.installed() == []
    assert "no release of ONNX Runtime is installed" in installation.missing_piece(layout)


def test_what_is_in_use_is_not_removed(layout: Layout) -> None:
    script = (
        "import sys; from pathlib import Path; from dmlprep.runtime.linux import install_locks\n"
        "from dmlprep.runtime.linux.layout import Layout\n"
        "install_locks.use(Layout(Path(sys.argv[1]))); print(1, flush=True); sys.stdin.read()"
    )
    line = [sys.executable, "-c", script, str(layout.home)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(CheckNotRun, match="in use by another process"):
            installation.remove(layout)
        with pytest.raises(CheckNotRun, match="in use by another process"):
            installation.remove(layout, "1.24.4")
        second = install_locks.use(layout)  # many may use it
        assert second is not None
        os.close(second)
        other.kill()  # the kernel gives its claim up
        other.wait()
        assert installation.remove(layout) == [layout.home]
    assert not layout.home.exists()


def test_no_session_starts_while_pieces_are_replaced(layout: Layout) -> None:
    with install_locks.alone(layout), pytest.raises(CheckNotRun, match="being installed or removed"):
        LinuxHost(layout, "1.24.4").worker()


def test_a_claim_ends_with_its_worker(layout: Layout) -> None:
    # The "root file system" holds no loader, so the sandbox cannot even start.
    with pytest.raises(SessionFailure, match="exit code 127"):
        LinuxHost(layout, "1.24.4").worker()
    with install_locks.alone(layout):
        pass


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    status = dml_status()
    assert not status.available
    assert "XDG_CACHE_HOME" in status.reason


def test_a_cache_folder_that_cannot_be_written_serves(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's installation: the result of the self-test is used, though it cannot be kept."""
    tested: list[int] = []

    def passed(_make: object) -> dict[str, object]:
        tested.append(1)
        facts = {"adapter": "llvmpipe", "directml": "1.15.4", "onnxruntime": "1.24.4"}
        return {"facts": facts, "failures": [], "passed": [], "fp16": {}, "lasting": True}

    monkeypatch.setenv("XDG_CACHE_HOME", str(layout.home.parent))
    monkeypatch.setattr(Layout, "of_user", classmethod(lambda _cls: layout))
    monkeypatch.setattr(dml, "run_test", passed)
    monkeypatch.setattr("dmlprep.runtime.linux.sandbox.why_not", lambda _root: "")
    layout.checks.write_text("a file where the folder should be")
    assert dml_status().available
    assert dml_status().available
    assert len(tested) == 2
    layout.checks.unlink()
    assert dml_status().available
    assert dml_status().available
    assert len(tested) == 3, "where it can be kept, it is kept"


def test_a_self_test_that_fails_on_damage_says_what_is_damaged(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(_make: object) -> dict[str, object]:
        return {"facts": {}, "failures": ["Conv FP32: nonsense"], "passed": [], "fp16": {}, "lasting": False}

    monkeypatch.setattr(Layout, "of_user", classmethod(lambda _cls: layout))
    monkeypatch.setattr(dml, "run_test", failed)
    monkeypatch.setattr("dmlprep.runtime.linux.sandbox.why_not", lambda _root: "")
    assert "Conv FP32: nonsense" in dml_status().reason
    (layout.built / "host.exe").write_bytes(b"tsoh")
    assert "damaged: native/host.exe has other contents" in dml_status().reason


def test_shaders_are_thrown_away_where_the_self_test_fails(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    layout.shaders.mkdir()

    def shaders_decide(_make: object) -> dict[str, object]:
        failures = ["Conv FP32: nonsense"] if layout.shaders.is_dir() else []
        return {"facts": {}, "failures": failures, "passed": [], "fp16": {}, "lasting": False}

    monkeypatch.setattr(Layout, "of_user", classmethod(lambda _cls: layout))
    monkeypatch.setattr(dml, "run_test", shaders_decide)
    monkeypatch.setattr("dmlprep.runtime.linux.sandbox.why_not", lambda _root: "")
    assert dml_status().available


def test_what_was_added_is_named_and_install_removes_it(layout: Layout) -> None:
    """A library, a setting or a link in a place where they are looked for would be loaded."""
    (layout.release("1.24.4") / "d3d12.dll").write_bytes(b"evil")
    (layout.root / "usr/lib/new").mkdir()
    (layout.root / "usr/lib/new/ld.so.preload").symlink_to("/tmp/evil.so")
    os.mkfifo(layout.built / "pipe")
    found = damaged(layout)
    assert found == {
        "root": "root/usr/lib/new/ld.so.preload was added",
        "native": "native/pipe was added",
        "release 1.24.4": "1.24.4/d3d12.dll was added",
    }
    assert damaged(layout, contents=True) == found
    reason = installation.missing_piece(layout)
    assert "the runtime is damaged: root/usr/lib/new/ld.so.preload was added; run dmlprep runtime install" in reason
    said: list[str] = []
    assert installation.broken_pieces(layout, "1.24.4", lambda what, *_: said.append(what)) == {}
    assert "removing root/usr/lib/new/ld.so.preload, which does not belong to the installation" in said
    assert len(said) == 3
    assert damaged(layout) == {}


def test_a_folder_that_became_a_link_is_damage(layout: Layout, tmp_path: Path) -> None:
    (layout.root / "usr").rename(tmp_path / "elsewhere")
    (layout.root / "usr").symlink_to(tmp_path / "elsewhere")
    assert damaged(layout) == {"root": "root/usr was added, and 1 more"}
    assert installation.broken_pieces(layout, "1.24.4", lambda *_: None) == {
        "root": "root/usr/lib/libvulkan.so is missing"
    }
    assert (tmp_path / "elsewhere/lib/libvulkan.so").is_file()


def test_a_file_that_became_something_else_is_damage(layout: Layout) -> None:
    path = layout.built / "host.exe"
    path.unlink()
    os.mkfifo(path)
    assert damaged(layout, contents=True) == {"native": "native/host.exe is not a file"}
    path.unlink()
    path.symlink_to("/dev/zero")
    assert damaged(layout, contents=True) == {"native": "native/host.exe is not a file"}


def test_a_pipe_is_not_written_down(layout: Layout) -> None:
    os.mkfifo(layout.built / "pipe")
    with pytest.raises(LeadsOut, match="native/pipe is neither a file"):
        inventory.record(layout, "native", layout.built)


# ---- what ran in the sandbox may leave links ------------------------------------------------------------------------


def leaving(monkeypatch: pytest.MonkeyPatch, leave: Callable[[Path], None]) -> None:
    """Put ``leave`` in place of what runs in the sandbox; it is given the folder that the sandbox can write."""

    def run(line: list[str], *_: object) -> None:
        at = line.index("/out")
        leave(Path(line[at - 1]))

    monkeypatch.setattr(installation, "run_or_fail", run)


def test_a_compiler_that_plants_a_link(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")

    def plant(out: Path) -> None:
        (out / "launch.sh").symlink_to(mine)

    leaving(monkeypatch, plant)
    installation.compile_programs(layout)
    assert mine.read_bytes() == b"mine"
    assert not (layout.built / "launch.sh").is_symlink()
    assert b"Xvfb" in (layout.built / "launch.sh").read_bytes()


@pytest.mark.parametrize("planted", ["prefix", "prefix/drive_c", "prefix/drive_c/windows/system32"])
def test_a_prefix_that_is_a_link(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    mine = tmp_path / "mine"
    (mine / "drive_c/windows/system32").mkdir(parents=True)
    (mine / "windows/system32").mkdir(parents=True)
    for folder in ("", "drive_c/windows/system32", "windows/system32"):
        (mine / folder / "d3d12.dll").write_bytes(b"mine")
    (mine / "system.reg").write_bytes(b"mine")
    (layout.built / "d3d12.dll").write_bytes(b"module")

    def plant(out: Path) -> None:
        link = out / planted
        link.parent.mkdir(parents=True, exist_ok=True)
        if planted != "prefix":
            (out / "prefix/system.reg").write_bytes(b"registry")
        link.symlink_to(mine)

    leaving(monkeypatch, plant)
    with pytest.raises((LeadsOut, CheckNotRun)):
        installation.make_prefix(layout)
    assert {path.read_bytes() for path in mine.rglob("*.dll")} == {b"mine"}
    assert (layout.prefix / "system.reg").read_bytes() == b"registry", "the one that was there stays"


def test_a_module_that_is_a_link_gives_nothing_away(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (layout.built / "d3d12.dll").symlink_to(tmp_path / "secret")

    def plant(out: Path) -> None:
        (out / "prefix/drive_c/windows/system32").mkdir(parents=True)
        (out / "prefix/system.reg").write_bytes(b"registry")

    leaving(monkeypatch, plant)
    with pytest.raises(LeadsOut, match=r"d3d12\.dll is a link"):
        installation.make_prefix(layout)


def test_a_missing_wheel_is_refused_before_the_downloads(layout: Layout, tmp_path: Path) -> None:
    shutil.rmtree(layout.home)
    source = Source("http://127.0.0.1:1", wheel=tmp_path / "onnxruntime_directml-1.99.0-cp313-cp313-win_amd64.whl")
    with pytest.raises(InputError, match="not a package of ONNX Runtime"):
        installation.install(layout, source, lambda *_: None)


def test_a_package_that_is_not_known_is_held_to_the_first_that_came(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that gives another file under the same name, when a release is made again, is refused."""
    file = tmp_path / "onnxruntime_directml-1.99.0-cp313-cp313-win_amd64.whl"

    def come(*_: object) -> Path:
        return file

    def pack(content: str) -> None:
        with zipfile.ZipFile(file, "w") as wheel:
            for name in ("onnxruntime.dll", "DirectML.dll"):
                wheel.writestr(f"onnxruntime/capi/{name}", content)

    monkeypatch.setattr(installation, "fetch_release", come)
    monkeypatch.setattr("dmlprep.runtime.linux.sandbox.why_not", lambda _root: "")
    source = Source(release="1.99.0")
    pack("first")
    assert installation.install(layout, source, lambda *_: None) == "1.99.0"
    assert installation.package_of(layout, "1.99.0")["pin"] == "unpinned"
    pack("other")
    (layout.release("1.99.0") / "DirectML.dll").unlink()
    with pytest.raises(InputError, match="the installed file of this name has"):
        installation.install(layout, source, lambda *_: None)
    # A person who names the file has chosen it.
    assert installation.install(layout, replace(source, wheel=file), lambda *_: None) == "1.99.0"
    assert (layout.release("1.99.0") / "DirectML.dll").read_bytes() == b"other"
