"""A package's folder that somebody else made: nothing of the user's goes, and no source of another's is vouched for."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dmlprep
from dmlprep.core.errors import CheckNotRun, InputError, OutputError
from tests.in_process import Run
from tests.system import needs_links

Contract = dict[str, Any]


def _rewrite(app: Path, change: Callable[[Contract], None]) -> None:
    """Change the contract, and make the digest beside it fit."""
    contract = json.loads((app / "model.json").read_text(encoding="utf-8"))
    change(contract)
    raw = json.dumps(contract).encode()
    (app / "model.json").write_bytes(raw)
    (app / "model.json.sha256").write_bytes(f"{hashlib.sha256(raw).hexdigest()}  model.json\n".encode())


def _list(app: Path, name: str, content: bytes = b"") -> None:
    entry = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _rewrite(app, lambda contract: contract["files"].update({name: entry}))


def _tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _again(proved: Path, app: Path) -> None:
    dmlprep.package_model(proved, out=app, language="python", unproven=True, force=True)


NO_NAMES = (
    ".", "..", "", "a/b", "a\\b", "../x", "nul.txt", "a:b", "a ", ".dmlprep-old-x:y", "dmlprep_model/..",
    "dmlprep_model/", "dmlprep_model/a/b", "dmlprep_model/nul.py",
)  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_contract_that_names_no_plain_file_is_refused_and_nothing_goes(
    proved: Path, app: Path, run: Run, name: str
) -> None:
    (app.parent / "mine.txt").write_text("mine")
    _list(app, name)
    before = _tree(app.parent)
    done = run("package", proved, "-o", app, "--for", "python", "--unproven", "--force")
    assert done.code == InputError.exit_code
    assert _tree(app.parent) == before
    assert run("package", "verify", app).code == InputError.exit_code


def test_a_folder_of_the_user_that_the_contract_names_stays(proved: Path, app: Path) -> None:
    (app / ".git").mkdir()
    (app / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    _list(app, ".git")
    _again(proved, app)
    assert (app / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert dmlprep.verify_package(app).others == [".git/HEAD"]


def test_a_file_with_another_digest_than_the_contract_says_stays(proved: Path, app: Path) -> None:
    (app / "notes.txt").write_text("mine")
    _list(app, "notes.txt", b"theirs")
    (app / "old.txt").write_bytes(b"theirs")
    _list(app, "old.txt", b"theirs")
    _again(proved, app)
    assert (app / "notes.txt").read_text() == "mine"
    assert not (app / "old.txt").exists()


@pytest.mark.parametrize("name", ["mine.txt", "loader.py"])
@pytest.mark.parametrize("language", ["python", "csharp"])
def test_a_file_of_the_user_in_the_folder_of_the_loader_stays(
    proved: Path, app: Path, name: str, language: str
) -> None:
    mine = app / "dmlprep_model" / name
    mine.write_text("mine")
    before = _tree(app)
    with pytest.raises(OutputError, match="added or changed after packaging") as refused:
        dmlprep.package_model(proved, out=app, language=language, unproven=True, force=True)
    assert Path(refused.value.where) == mine
    assert _tree(app) == before


def test_the_folder_of_the_loader_goes_with_its_package(proved: Path, app: Path) -> None:
    before = _tree(app)
    (app / "dmlprep_model" / "__pycache__").mkdir()
    (app / "dmlprep_model" / "old.py").write_bytes(b"theirs")
    _list(app, "dmlprep_model/old.py", b"theirs")
    _again(proved, app)
    assert _tree(app) == before
    assert sorted(p.name for p in app.iterdir()) == sorted({name.partition("/")[0] for name in before})
    dmlprep.package_model(proved, out=app, language="csharp", unproven=True, force=True)
    assert not (app / "dmlprep_model").exists()
    (app / "dmlprep_model").mkdir()
    (app / "dmlprep_model" / "mine.txt").write_text("mine")
    dmlprep.package_model(proved, out=app, language="csharp", unproven=True, force=True)
    assert (app / "dmlprep_model" / "mine.txt").read_text() == "mine"


@needs_links
def test_a_link_in_place_of_the_folder_of_the_loader_stays(proved: Path, app: Path, run: Run) -> None:
    theirs = (app / "dmlprep_model").rename(app.parent / "elsewhere")
    (app / "dmlprep_model").symlink_to(theirs, target_is_directory=True)
    before = _tree(theirs)
    done = run("package", "verify", app)
    assert done.code == InputError.exit_code
    assert "it is a link" in done.err
    with pytest.raises(OutputError, match="added or changed after packaging"):
        _again(proved, app)
    dmlprep.package_model(proved, out=app, language="csharp", unproven=True, force=True)
    assert (app / "dmlprep_model").is_symlink()
    assert _tree(theirs) == before


def test_a_file_that_appears_meanwhile_in_the_folder_of_the_loader_stays(proved: Path, app: Path) -> None:
    mine = app / "dmlprep_model" / "mine.txt"

    def progress(share: float, text: str) -> None:
        mine.write_text("mine")

    with pytest.raises(OutputError, match="added or changed after packaging") as refused:
        dmlprep.package_model(proved, out=app, language="python", unproven=True, force=True, progress=progress)
    assert Path(refused.value.where) == mine
    assert mine.read_text() == "mine"


@needs_links
def test_a_link_that_the_contract_names_stays(proved: Path, app: Path) -> None:
    (app.parent / "target.txt").write_bytes(b"theirs")
    (app / "link.txt").symlink_to(app.parent / "target.txt")
    _list(app, "link.txt", b"theirs")
    _again(proved, app)
    assert (app / "link.txt").read_bytes() == b"theirs"


@pytest.mark.parametrize("name", ["sample.py", "model.json.sig"])
def test_a_file_that_the_user_changed_is_not_replaced(proved: Path, app: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("cryptography", reason="the extra sign is not installed")
    (app / name).write_text("mine")
    before = _tree(app)
    with pytest.raises(OutputError, match="added or changed after packaging") as refused:
        dmlprep.package_model(proved, out=app, language="python", unproven=True, force=True, sign=tmp_path / "key")
    assert Path(refused.value.where) == app / name
    assert _tree(app) == before


def test_a_file_that_appears_meanwhile_is_not_replaced(proved: Path, tmp_path: Path) -> None:
    app = tmp_path / "app"

    def progress(share: float, text: str) -> None:
        if share and not (app / "sample.py").exists():
            (app / "sample.py").write_text("mine")

    with pytest.raises(OutputError, match="the file exists") as refused:
        dmlprep.package_model(proved, out=app, language="python", unproven=True, progress=progress)
    assert Path(refused.value.where) == app / "sample.py"
    assert _tree(app) == {"sample.py": b"mine"}


@pytest.fixture
def for_csharp(proved: Path, tmp_path: Path) -> Path:
    dmlprep.package_model(proved, out=tmp_path / "app", language="csharp", unproven=True)
    return tmp_path / "app"


def _nupkg(run: Run, app: Path, *options: str) -> int:
    out = app.parent / "feed"
    out.mkdir(exist_ok=True)
    return run("package", "nupkg", app, "-o", out, "--id", "A.B", "--version", "1.0.0", *options).code


@pytest.mark.parametrize("name", ["DmlprepModel.cs", "DmlprepMore.cs", "README.md"])
def test_a_source_that_dmlprep_does_not_write_is_refused(for_csharp: Path, run: Run, name: str) -> None:
    content = b"class Evil {}\n"
    (for_csharp / name).write_bytes(content)
    _list(for_csharp, name, content)
    done = run("package", "verify", for_csharp)
    assert done.code == InputError.exit_code
    assert name in done.err
    assert "DP822" in done.err
    assert _nupkg(run, for_csharp) == InputError.exit_code
    assert list((for_csharp.parent / "feed").iterdir()) == []


def test_the_loader_of_another_version_is_not_compared_and_that_is_an_outcome(for_csharp: Path, run: Run) -> None:
    assert dmlprep.verify_package(for_csharp).loader == "compared"
    assert _nupkg(run, for_csharp) == 0
    _rewrite(for_csharp, lambda contract: contract.update(made_by="dmlprep 0.0.1"))
    done = run("package", "verify", for_csharp)
    assert done.code == CheckNotRun.exit_code
    assert "NOT COMPARED" in done.out
    assert run("package", "verify", for_csharp, "-q").code == CheckNotRun.exit_code
    assert "as they were made" not in done.out
    assert json.loads(run("package", "verify", for_csharp, "--format", "json").out)["loader"] == "not compared"
    assert _nupkg(run, for_csharp, "--force") == InputError.exit_code
    assert _nupkg(run, for_csharp, "--force", "--no-loader") == 0


@pytest.mark.parametrize(("field", "value"), [("language", "cobol"), ("name", "ort-9.99")])
def test_a_contract_that_this_version_cannot_have_written(app: Path, run: Run, field: str, value: str) -> None:
    _rewrite(app, lambda contract: (contract if field in contract else contract["target"]).update({field: value}))
    assert run("package", "verify", app).code == InputError.exit_code


@needs_links
def test_a_link_in_the_run_is_not_packaged(proved: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(proved, tmp_path / "run"))
    (out / "model.onnx").replace(tmp_path / "elsewhere")
    (out / "model.onnx").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link to a place outside the folder"):
        dmlprep.package_model(out, out=tmp_path / "app", language="python", unproven=True)
    assert not (tmp_path / "app").exists()


@needs_links
def test_a_data_file_that_no_tensor_reads_is_left_out(proved: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(proved, tmp_path / "run"))
    (tmp_path / "elsewhere").write_text("secret")
    (out / "model.onnx.data").symlink_to(tmp_path / "elsewhere")
    dmlprep.package_model(out, out=tmp_path / "app", language="python", unproven=True)
    assert [path for path in (tmp_path / "app").rglob("*") if path.is_file() and b"secret" in path.read_bytes()] == []
