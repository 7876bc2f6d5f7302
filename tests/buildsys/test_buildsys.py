"""The build systems prepare a model, and stop when it is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from onnx import parser

from dmlprep.buildsys import folder

_ROOT = Path(__file__).parents[2]

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x) => (float[batch, 4] y) <float[4] b = {1, 2, 3, 4}> { a = Add(x, b)  y = Relu(a) }"""

_CMAKE = """cmake_minimum_required(VERSION 3.21)
project(app NONE)
find_package(dmlprep CONFIG REQUIRED PATHS "${DMLPREP_CMAKE}" NO_DEFAULT_PATH)
dmlprep_add_model(add MODEL add.onnx PINS batch=2)
get_target_property(path add DMLPREP_MODEL)
message(STATUS "result: ${path}")
"""


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def _project(path: Path) -> Path:
    onnx.save(parser.parse_model(_TEXT), path / "add.onnx")
    return path


@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("ninja"), reason="cmake and ninja are not installed")
def test_cmake(tmp_path: Path) -> None:
    (_project(tmp_path) / "CMakeLists.txt").write_text(_CMAKE)
    made = _run(
        "cmake",
        "-G",
        "Ninja",
        "-B",
        "build",
        f"-DPython3_EXECUTABLE={sys.executable}",
        f"-DDMLPREP_CMAKE={folder('cmake')}",
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    built = _run("cmake", "--build", "build", cwd=tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    result = tmp_path / "build" / "add" / "model.onnx"
    assert onnx.load(result).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    assert "no work to do" in _run("cmake", "--build", "build", cwd=tmp_path).stdout
    (tmp_path / "add.onnx").write_bytes(b"broken")
    broken = _run("cmake", "--build", "build", cwd=tmp_path)
    assert broken.returncode != 0
    assert "DP001" in broken.stdout + broken.stderr


def test_hatch(tmp_path: Path) -> None:
    package = _project(tmp_path) / "mypackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling", "dmlprep"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "mypackage"\nversion = "1"\n'
        "[[tool.hatch.build.targets.wheel.hooks.dmlprep.models]]\n"
        'source = "add.onnx"\ninto = "mypackage/add"\npins = { batch = 3 }\n'
    )
    built = _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {"mypackage/add/model.onnx", "mypackage/add/run.json"} <= set(archive.namelist())


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("pinns = { batch = 3 }", "unknown: ['pinns']"),
        ("pins = { batch = 3 }\nsettings = ['step.simplify.time_limit=0']", "time_limit"),
        ("pins = { bach = 3 }", "did you mean 'batch'?"),
        ('pins = { "rate:" = 3 }', "the model has no input 'rate'"),
    ],
)
def test_hatch_stops_where_a_model_cannot_be_prepared(field: str, said: str, tmp_path: Path) -> None:
    (_project(tmp_path) / "mypackage").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling", "dmlprep"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "mypackage"\nversion = "1"\n'
        "[[tool.hatch.build.targets.wheel.hooks.dmlprep.models]]\n"
        f'source = "add.onnx"\ninto = "mypackage/add"\n{field}\n'
    )
    (tmp_path / "mypackage" / "__init__.py").write_text("")
    built = _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=tmp_path)
    assert built.returncode != 0
    assert said in built.stdout + built.stderr
    assert not list(tmp_path.glob("dist/*.whl"))


def test_the_pre_commit_hook_takes_every_file_at_once(tmp_path: Path) -> None:
    (hook,) = re.findall(r"^  entry: dmlprep (.*)$", (_ROOT / ".pre-commit-hooks.yaml").read_text(), re.MULTILINE)
    _project(tmp_path)
    (tmp_path / "text.onnx").write_text("no model")
    command = [sys.executable, "-m", "dmlprep", *hook.split()]
    assert _run(*command, "add.onnx", "add.onnx", cwd=tmp_path).returncode == 0
    done = _run(*command, "text.onnx", "add.onnx", cwd=tmp_path)
    assert done.returncode == 2
    assert "DP001" in done.stderr
    assert "add.onnx: opset" in done.stdout


def test_msbuild_file_is_well_formed() -> None:
    root = ElementTree.parse(folder("msbuild") / "dmlprep.targets").getroot()
    assert root.tag.endswith("Project")


def test_the_folder_is_printed(tmp_path: Path) -> None:
    assert Path(_run(sys.executable, "-m", "dmlprep.buildsys", "cmake", cwd=tmp_path).stdout.strip()) == folder("cmake")
    assert _run(sys.executable, "-m", "dmlprep.buildsys", "scons", cwd=tmp_path).returncode == 1
