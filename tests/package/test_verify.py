"""A package that was changed is refused, by ``verify`` and by the loader, and the file is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import dmlprep
from dmlprep.core.errors import InputError
from dmlprep.portable.public import Model, PackageDamaged
from tests.in_process import Run

LOADER = (
    "__init__.py", "app_errors.py", "app_files.py", "app_sessions.py", "buckets.py", "device.py", "dxgi.py",
    "hresult.py", "loader.py", "ortoptions.py", "py.typed", "vendors.py",
)  # fmt: skip
NAMES = (
    ".gitattributes", "README.md", "model.json", "model.json.sha256", "model.onnx", "model.schema.json",
    "requirements.txt", "sample.py", *(f"dmlprep_model/{name}" for name in LOADER),
)  # fmt: skip


def test_these_are_all_files(made: Path) -> None:
    assert sorted(p.relative_to(made).as_posix() for p in made.rglob("*") if p.is_file()) == sorted(NAMES)
    assert dmlprep.verify_package(made).others == []


@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("name", NAMES)
def test_a_byte_that_was_changed(app: Path, name: str, place: str) -> None:
    raw = bytearray((app / name).read_bytes())
    raw[{"first": 0, "middle": len(raw) // 2, "last": len(raw) - 1}[place]] ^= 1
    (app / name).write_bytes(raw)
    with pytest.raises(InputError) as refused:
        dmlprep.verify_package(app)
    assert refused.value.code == "DP822"
    with pytest.raises(PackageDamaged) as damaged:
        Model(app, device="cpu")
    # The two that hold each other: either may be the one that was changed.
    named = {name, "model.json"} if name == "model.json.sha256" else {name}
    assert Path(refused.value.where).relative_to(app).as_posix() in named
    assert damaged.value.file in named
    assert damaged.value.file in str(damaged.value)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is missing")
def test_git_for_windows_keeps_the_line_ends(app: Path, tmp_path: Path) -> None:
    """Its installer sets core.autocrlf."""
    clean = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    git = ["git", "-C", str(app.parent), "-c", "core.autocrlf=true"]
    prefix = f"--prefix={tmp_path / 'clone'}{os.sep}"
    for words in (["init", "-q"], ["add", app.name], ["checkout-index", "-a", prefix]):
        subprocess.run([*git, *words], env=clean, check=True, capture_output=True)
    clone = tmp_path / "clone" / app.name
    assert dmlprep.verify_package(clone).others == []
    assert Model(clone, device="cpu").device == "cpu"


@pytest.mark.parametrize("name", ["model.json", "model.json.sha256", "model.onnx"])
def test_a_file_that_is_missing(app: Path, name: str, run: Run) -> None:
    (app / name).unlink()
    done = run("package", "verify", app)
    assert done.code == InputError.exit_code
    assert f"{name}: " in done.err
    with pytest.raises(PackageDamaged, match=f"^{name} is missing"):
        Model(app, device="cpu")


def test_what_an_app_need_not_ship_may_be_missing(app: Path) -> None:
    for name in ("README.md", "sample.py", "model.schema.json", "requirements.txt", "dmlprep_model/loader.py"):
        (app / name).unlink()
    assert Model(app, device="cpu").device == "cpu"
    with pytest.raises(InputError, match="missing"):
        dmlprep.verify_package(app)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"format": 2}', "[" * 100_000, '{"format": 1, "files": {"../x": {"bytes": 1, "sha256": ""}}}'],
)
def test_a_contract_that_is_none(app: Path, text: str) -> None:
    (app / "model.json").write_text(text)
    with pytest.raises(InputError, match=r"model\.json: not a contract"):
        dmlprep.verify_package(app)
    with pytest.raises(PackageDamaged):
        Model(app, device="cpu")


def test_a_contract_in_no_encoding(app: Path) -> None:
    contract = app / "model.json"
    contract.write_bytes(contract.read_bytes().replace(b"model.onnx", b"mod\x99l.onnx", 1))
    with pytest.raises(InputError, match=r"model\.json: not a contract"):
        dmlprep.verify_package(app)
    with pytest.raises(PackageDamaged):
        Model(app, device="cpu")


def test_more_files_are_told_of(app: Path, run: Run) -> None:
    (app / "onnxruntime.py").write_text("")
    done = run("package", "verify", app)
    assert done.code == 0
    assert "not part of the package" in done.out
    assert "onnxruntime.py" in done.out
