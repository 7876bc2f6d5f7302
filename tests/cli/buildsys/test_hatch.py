"""Wheels built with hatchling, by ``hatchling build`` and by ``python -m build``, with models in them."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path

import onnx
import pytest

from tests.cli.buildsys.tools import MODELS, RECIPE, Done, caches, run, write_feed

_HEAD = """[build-system]
requires = ["hatchling", "dmlprep"]
build-backend = "hatchling.build"

[project]
name = "mypackage"
version = "1"
"""
_MODELS = """
[[tool.hatch.build.targets.wheel.hooks.dmlprep.models]]
source = "models/residual_cnn.onnx"
into = "mypackage/net"
recipe = "tiny.toml"
pins = { batch = 1 }
feeds = ["feeds"]

[[tool.hatch.build.targets.wheel.hooks.dmlprep.models]]
source = "models/external_cnn.onnx"
into = "mypackage/split"
recipe = "tiny.toml"
external_data = true
"""
_INSIDE = {
    "mypackage/net/model.onnx",
    "mypackage/net/run.json",
    "mypackage/split/model.onnx",
    "mypackage/split/model.onnx.data",
    "mypackage/split/run.json",
}

needs_build = pytest.mark.skipif(importlib.util.find_spec("build") is None, reason="pip install build")


def _project(path: Path, models: str = _MODELS) -> Path:
    for folder in ("mypackage", "models", "feeds"):
        (path / folder).mkdir(parents=True)
    (path / "mypackage" / "__init__.py").write_text("")
    for name in ("residual_cnn.onnx", "external_cnn.onnx", "external_cnn.onnx.data"):
        (path / "models" / name).write_bytes((MODELS / name).read_bytes())
    write_feed(path / "feeds" / "one.npz", 1)
    (path / "tiny.toml").write_text(RECIPE)
    (path / "pyproject.toml").write_text(_HEAD + models)
    return path


def _hatchling(project: Path) -> Done:
    return run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=project)


def _wheel(project: Path) -> Path:
    (made,) = (project / "dist").glob("*.whl")
    return made


def _inside(project: Path) -> set[str]:
    with zipfile.ZipFile(_wheel(project)) as archive:
        return {name for name in archive.namelist() if name.startswith("mypackage/") and not name.endswith(".py")}


@pytest.mark.builds
def test_models_and_their_data_are_in_the_wheel(tmp_path: Path) -> None:
    project = _project(tmp_path / "p")
    done = _hatchling(project)
    assert done.code == 0, done.out
    assert _inside(project) == _INSIDE
    with zipfile.ZipFile(_wheel(project)) as archive:
        archive.extractall(tmp_path / "installed")
    onnx.load(tmp_path / "installed" / "mypackage" / "split" / "model.onnx")  # reads the data beside it
    # A wheel that is built again has what its sources say now.
    (project / "pyproject.toml").write_text(_HEAD + _MODELS.replace("batch = 1", "batch = 1, 'pixel_values:3' = 32"))
    (project / "models" / "external_cnn.onnx.data").write_bytes(bytes(1 << 20))
    assert _hatchling(project).code == 0
    with zipfile.ZipFile(_wheel(project)) as archive:
        assert not any(archive.read("mypackage/split/model.onnx.data"))


_MODEL = '[[tool.hatch.build.targets.wheel.hooks.dmlprep.models]]\nsource = "models/{}"\ninto = "mypackage/net"\n'


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (_MODEL.format("residual_cnn.onnx") + "pinns = { batch = 3 }", "unknown: ['pinns']"),
        pytest.param(
            _MODEL.format("residual_cnn.onnx") + "settings = ['step.simplify.time_limit=0']",
            "time_limit",
            marks=pytest.mark.slow,
        ),
        (_MODEL.format("residual_cnn.onnx") + "pins = { bach = 3 }", "did you mean 'batch'?"),
        pytest.param(
            _MODEL.format("residual_cnn.onnx") + 'pins = { "rate:" = 3 }',
            "the model has no input 'rate'",
            marks=pytest.mark.slow,
        ),
        pytest.param(_MODEL.format("nowhere.onnx"), "nowhere.onnx", marks=pytest.mark.slow),
        pytest.param(
            _MODEL.format("residual_cnn.onnx") * 2, "models[0] goes into mypackage/net as well", marks=pytest.mark.slow
        ),
    ],
)
def test_the_build_stops_where_a_model_cannot_be_prepared(models: str, said: str, tmp_path: Path) -> None:
    project = _project(tmp_path / "p", models)
    done = _hatchling(project)
    assert done.code != 0
    assert said in done.out
    assert "Traceback" not in done.out
    assert not list(project.glob("dist/*.whl"))


@pytest.mark.builds
@needs_build
@pytest.mark.slow
def test_python_m_build_without_isolation(tmp_path: Path) -> None:
    project = _project(tmp_path / "p")
    done = run(sys.executable, "-m", "build", "--no-isolation", cwd=project)  # an sdist, and the wheel from that
    assert done.code == 0, done.out
    assert _inside(project) == _INSIDE


@pytest.mark.builds
@needs_build
@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_python_m_build_finds_the_wheel_of_dmlprep_by_find_links(wheel: Path, tmp_path: Path) -> None:
    project = _project(tmp_path / "p")
    alone = {"PYTHONPATH": "", "PIP_FIND_LINKS": str(wheel.parent), **caches(tmp_path / "xdg")}
    done = run(sys.executable, "-m", "build", cwd=project, env=alone)
    assert done.code == 0, done.out
    assert _inside(project) == _INSIDE
