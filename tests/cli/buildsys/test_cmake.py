"""CMake with Ninja and with Make: what is rebuilt when, versions, and what is installed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import onnx
import pytest

from dmlprep.cli.buildsys import folder
from dmlprep.core._version import __version__
from tests.cli.buildsys.tools import MODELS, RECIPE, Counted, Done, run, write_feed

_LISTS = """cmake_minimum_required(VERSION 3.21)
project(app NONE)
find_package(dmlprep {version} CONFIG REQUIRED PATHS "${{DMLPREP_CMAKE}}" NO_DEFAULT_PATH)
dmlprep_add_model(net MODEL net.onnx RECIPE tiny.toml PINS batch=1 FEEDS feeds SETTINGS parity.seeds={seeds}
  ARGUMENTS --device cpu)
dmlprep_add_model(split MODEL external_cnn.onnx RECIPE tiny.toml EXTERNAL_DATA ARGUMENTS --device cpu)
get_target_property(path net DMLPREP_MODEL)
get_target_property(data split DMLPREP_DATA)
message(STATUS "results: ${{path}} ${{data}}")
dmlprep_install(net DESTINATION share/models)
dmlprep_install(split DESTINATION share/models)
"""

_GENERATORS = [
    pytest.param("Ninja", marks=pytest.mark.skipif(not shutil.which("ninja"), reason="ninja is not installed")),
    pytest.param("Unix Makefiles", marks=pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")),
]
pytestmark = [
    pytest.mark.builds,
    pytest.mark.skipif(
        not shutil.which("cmake") or sys.platform == "win32", reason="cmake is not installed, or this is Windows"
    ),
]


class _Project:
    def __init__(self, path: Path, generator: str) -> None:
        self.path = path
        self.generator = generator
        (path / "command").mkdir()
        self.dmlprep = Counted(path / "command")
        (path / "feeds").mkdir()
        write_feed(path / "feeds" / "one.npz", 1)
        shutil.copyfile(MODELS / "residual_cnn.onnx", path / "net.onnx")
        for name in ("external_cnn.onnx", "external_cnn.onnx.data"):
            shutil.copyfile(MODELS / name, path / name)
        (path / "tiny.toml").write_text(RECIPE)
        self.lists()

    def lists(self, *, version: str = "", seeds: str = "1") -> None:
        (self.path / "CMakeLists.txt").write_text(_LISTS.format(version=version, seeds=seeds))

    def configure(self) -> Done:
        # The copy's folder, so that another version can be installed there.
        cmake = self.path / "command" / "site" / "dmlprep" / "cli" / "buildsys" / "cmake"
        line = ("-B", "build", f"-DDMLPREP_CMAKE={cmake}", f"-DDMLPREP_EXECUTABLE={self.dmlprep.path}")
        return run("cmake", "-G", self.generator, *line, cwd=self.path)

    def build(self, *arguments: str) -> Done:
        return run("cmake", "--build", "build", *arguments, cwd=self.path)


@pytest.mark.slow
@pytest.mark.parametrize("generator", _GENERATORS)
def test_each_kind_of_change_rebuilds_and_nothing_else(generator: str, tmp_path: Path) -> None:
    project = _Project(tmp_path, generator)
    made = project.configure()
    assert made.code == 0, made.out
    build = tmp_path / "build"
    assert f"results: {build}/net/model.onnx {build}/split/model.onnx.data" in made.out

    def rebuilds(*names: str) -> None:
        time.sleep(0.05)
        done = project.build()
        assert done.code == 0, done.out
        assert project.dmlprep.taken() == sorted(names)

    rebuilds("net.onnx", "external_cnn.onnx")
    assert onnx.load(build / "net" / "model.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1
    rebuilds()
    os.utime(tmp_path / "external_cnn.onnx.data")
    rebuilds("external_cnn.onnx")
    write_feed(tmp_path / "feeds" / "one.npz", 2)
    rebuilds("net.onnx")
    write_feed(tmp_path / "feeds" / "two.npz", 2)  # a file more in a folder of feeds
    rebuilds("net.onnx")
    (tmp_path / "tiny.toml").write_text(RECIPE + "[step.denote]\n")
    rebuilds("net.onnx", "external_cnn.onnx")
    project.lists(seeds="2")
    rebuilds("net.onnx")
    (build / "split" / ("model.onnx.data" if generator == "Ninja" else "model.onnx")).unlink()  # Make watches one file
    rebuilds("external_cnn.onnx")
    project.dmlprep.install_another("0.1.9")
    os.utime(tmp_path / "command" / "site" / "dmlprep" / "core" / "_version.py")
    rebuilds("net.onnx", "external_cnn.onnx")
    rebuilds()

    installed = run("cmake", "--install", "build", "--prefix", tmp_path / "installed", cwd=tmp_path)
    assert installed.code == 0, installed.out
    files = {p.relative_to(tmp_path / "installed").as_posix() for p in (tmp_path / "installed").rglob("*.*")}
    below = "share/models"
    assert files == {f"{below}/net/model.onnx", f"{below}/split/model.onnx", f"{below}/split/model.onnx.data"}
    onnx.load(tmp_path / "installed" / below / "split" / "model.onnx")  # reads the data beside it
    assert project.build("--target", "clean").code == 0
    assert not list(build.rglob("model.onnx*"))


@pytest.mark.parametrize("generator", _GENERATORS)
def test_a_model_that_fails_fails_the_build(generator: str, tmp_path: Path) -> None:
    project = _Project(tmp_path, generator)
    assert project.configure().code == 0
    (tmp_path / "net.onnx").write_bytes(b"broken")
    for _ in range(2):
        done = project.build("--target", "net")
        assert done.code != 0
        assert "DP001" in done.out
        assert project.dmlprep.taken() == ["net.onnx"]
    assert not (tmp_path / "build" / "net" / "model.onnx").exists()


@pytest.mark.skipif(not shutil.which("ninja"), reason="ninja is not installed")
@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("0.1", True),
        (__version__, True),
        (f"{__version__} EXACT", True),
        ("0.0.9...<1", True),
        ("0.0.1...<0.0.9", False),
        ("0.0.1...0.0.9", False),
        ("0.999", False),
        ("1", False),
        ("1...<2", False),
    ],
)
def test_find_package_takes_a_version(version: str, found: bool, tmp_path: Path) -> None:
    text = f"cmake_minimum_required(VERSION 3.21)\nproject(app NONE)\nfind_package(dmlprep {version} CONFIG REQUIRED\n"
    text += f'  PATHS "{folder("cmake")}" NO_DEFAULT_PATH)\nmessage(STATUS "version ${{dmlprep_VERSION}}")\n'
    (tmp_path / "CMakeLists.txt").write_text(text)
    done = run("cmake", "-G", "Ninja", "-B", "build", f"-DDMLPREP_EXECUTABLE={sys.executable}", cwd=tmp_path)
    assert (done.code == 0) is found, done.out
    assert f"version {__version__}" in done.out if found else "not compatible" in done.out or "version" in done.out
