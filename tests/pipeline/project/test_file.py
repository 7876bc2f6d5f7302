"""The project file: where it is found, what it may say, and what holds for a model."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dmlprep.core.errors import UsageError
from dmlprep.pipeline.project import defaults_for, find_project, in_words, read_project
from tests.fixtures_index import fixture

_TEXT = """
target = "ort-1.24"
out = "build"
pins = { batch = 1 }
settings = ["parity.seeds=3"]
[models."m/*.onnx"]
recipe = "@vision-fp16"
pins = { height = 32 }
[models."m/b.onnx"]
recipe = "own.toml"
target = "ort-1.30"
pins = { batch = 2, "sr:" = 16000 }
settings = ["parity.seeds=4"]
feeds = ["{name}.npz", "x=x.npy"]
metric = "own.py:psnr"
metric_bound = 0.5
require_dml = true
out = "elsewhere"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    for name in ("a", "b"):
        shutil.copy(fixture("residual_cnn").path, tmp_path / f"m/{name}.onnx")
    (tmp_path / "dmlprep.toml").write_text(_TEXT)
    return tmp_path


def test_fields_of_entries_go_over_those_at_the_top(folder: Path) -> None:
    project = read_project(folder / "dmlprep.toml")
    a, b = (defaults_for(project, folder / f"m/{name}.onnx") for name in "ab")
    assert a.options == {
        "target": "ort-1.24",
        "recipe": "@vision-fp16",
        "pins": {"batch": 1, "height": 32},
        "settings": {"parity.seeds": 3},
    }
    assert a.out == folder / "build/a"
    assert b.options["recipe"] == str(folder / "own.toml")
    assert b.options["feeds"] == (str(folder / "b.npz"), f"x={folder / 'x.npy'}")
    assert (b.options["target"], b.options["require_dml"], b.out) == ("ort-1.30", True, folder / "elsewhere")
    assert b.options["pins"] == {"batch": 2, "height": 32, "sr:": 16000}
    assert b.options["settings"] == {"parity.seeds": 4}
    assert (str(b.options["metric"]), b.options["metric_bound"]) == (str(folder / "own.py:psnr"), 0.5)
    other = defaults_for(project, folder / "other.onnx")
    assert other.options == {"target": "ort-1.24", "pins": {"batch": 1}, "settings": {"parity.seeds": 3}}
    assert other.out == folder / "build/other"
    said = in_words(b.options)
    assert said.startswith("target ort-1.30, recipe ")
    assert "2 paths of feeds" in said
    assert "metric_bound 0.5, " in said
    assert "DirectML required, " in said
    assert said.endswith("pins height=32 batch=2 sr:=16000, parity.seeds=4")


def test_where_it_is_looked_for(folder: Path) -> None:
    deep = folder / "m"
    assert find_project(folder) == folder / "dmlprep.toml"
    assert find_project(deep) is None  # in no repository nothing above counts
    (folder / ".git").mkdir()
    assert find_project(deep) == folder / "dmlprep.toml"
    (deep / "pyproject.toml").write_text("[tool.other]\n")
    assert find_project(deep) == folder / "dmlprep.toml"
    (deep / "pyproject.toml").write_text('[tool.dmlprep]\nrecipe = "@vision-fp16"\n')
    assert find_project(deep) == deep / "pyproject.toml"
    assert read_project(deep / "pyproject.toml").defaults == {"recipe": "@vision-fp16"}
    (deep / ".git").mkdir()
    (deep / "pyproject.toml").unlink()
    assert find_project(deep) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("recipe = 1", "Expected"),
        ("receipe = '@x'", "did you mean 'recipe'"),
        ("[models.x]\npin = {}", "did you mean 'pins'"),
        ("models = 1", "Expected"),
        ("pins = { batch = [[1]] }\ndevice = 'gpu'", "device"),
        ("pins = { batch = -1 }", "'pins.batch' is not a size: -1"),
        ("[models.x.sizes.a]\nheight = '64'", "'models.x.sizes.a.height' is not a size: \"64\""),
        ("[models.x]\ndevice = 'gpu'", "'models.x.device'"),
        ("[models.x]\ndevice = 'gpu'", "one of: auto, cpu, dml"),
        ("x = " + "[" * 5000, "deep"),
        ("[", "not TOML"),
        ("a = '\\u0000'", "zero|unknown"),
    ],
)
def test_files_that_say_what_they_cannot(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "dmlprep.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_project(tmp_path / "dmlprep.toml")
    assert caught.value.code == "DP904"
    assert any(word in f"{caught.value.what} {caught.value.fix}" for word in said.split("|"))


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_is_refused(folder: Path) -> None:
    os.chown(folder / "dmlprep.toml", 12345, 12345)
    with pytest.raises(UsageError, match="another user"):
        read_project(folder / "dmlprep.toml")
