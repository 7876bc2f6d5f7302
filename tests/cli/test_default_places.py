"""Commands without ``-o``: the result is in ``build/KIND/NAME`` and replaces no file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from tests.fixtures_index import fixture
from tests.in_process import Run
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here
from tests.system import needs_links

_PREPARE = ("prepare", "net.onnx", "--pin", "batch=1", "--device", "cpu")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    shutil.copy(fixture("residual_cnn").path, place / "net.onnx")
    monkeypatch.chdir(place)
    return place


def test_each_command_names_its_place_and_replaces_no_file(folder: Path, run: Run) -> None:
    prepared = folder / "build/models/net"
    places = {
        _PREPARE: prepared / "model.onnx",
        ("kit", prepared / "model.onnx"): folder / "build/kits/net.zip",
        ("kit", "net.onnx", "--force"): folder / "build/kits/net.zip",
        ("package", prepared, "--for", "python", "--unproven"): folder / "build/packages/net/model.json",
    }
    for command, place in places.items():
        done = run(*command)
        assert done.code == 0, done.err
        assert str(Path("build") / place.relative_to(folder / "build").parent) in done.out
        before = place.read_bytes()
        again = run(*(word for word in command if word != "--force"))
        assert (again.code, "--force" in again.err, place.read_bytes() == before) == (2, True, True)


def test_bisect_writes_below_build_too(folder: Path, run: Run) -> None:
    model = onnx.load(folder / "net.onnx")
    bias = next(one for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT)
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) * 2, bias.name))
    onnx.save(model, folder / "other.onnx")
    done = run("bisect", "net.onnx", "other.onnx", "--size", "batch=1")
    assert (done.code, str(Path("build/bisect/net/node.onnx")) in done.out) == (1, True)
    assert (folder / "build/bisect/net/node.onnx").is_file()


def test_the_place_is_next_to_the_project_file_of_the_repository(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".git").mkdir()
    (folder / "dmlprep.toml").write_text("pins = { batch = 1 }\n")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert run("prepare", "../net.onnx", "--device", "cpu", "-q").code == 0
    assert (folder / "build/models/net/run.json").exists()


@needs_links
def test_a_link_does_not_lead_the_default_elsewhere(folder: Path, run: Run) -> None:
    (folder / "other").mkdir()
    os.symlink(folder / "other", folder / "build", target_is_directory=True)
    for command in (_PREPARE, ("kit", "net.onnx")):
        done = run(*command)
        assert (done.code, "build: is a link" in done.err) == (2, True)
    assert list((folder / "other").iterdir()) == []
