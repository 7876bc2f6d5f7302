"""The C++ package as a CMake project: built by MinGW-w64, staged, installed, and found again by another project."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dmlprep
from dmlprep.core.files.windows_image import read_image
from tests.package.images import put_libraries
from tests.system import not_on_windows

ROOT = Path(__file__).resolve().parents[2]

COMPILER = "x86_64-w64-mingw32-g++-posix"
_MODEL = ("model.json", "model.json.sha256", "model.onnx")
_DLLS = ("onnxruntime.dll", "DirectML.dll")
_CONSUMER = """cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES CXX)
find_package(dmlprep_model REQUIRED)
add_executable(app app.cpp)
target_link_libraries(app PRIVATE dmlprep::model)
target_link_options(app PRIVATE -static)
dmlprep_stage(app models/first)
dmlprep_stage(app models/second "${CMAKE_SOURCE_DIR}/second")
"""
_PROGRAM = """#include <dmlprep_model.h>
int main() {
    std::unique_ptr<dmlprep::Model> model;
    dmlprep::Status status = dmlprep::Model::load("models/first", {}, model);
    std::vector<float> pixels(3 * 32 * 32);
    dmlprep::Tensors outputs;
    if (status)
        status = model->run({{"pixel_values", dmlprep::Tensor::from(std::move(pixels), {1, 3, 32, 32})}}, outputs);
    float sum = 0;
    for (float score : outputs["logits"].as<float>())
        sum += score;
    return status && sum != 0 ? 0 : 1;
}
"""

pytestmark = [
    not_on_windows("it cross-compiles; on Windows that would be another compiler's test"),
    pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("ninja") is None, reason="needs cmake and ninja"),
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"needs {COMPILER}"),
]


@pytest.fixture(scope="module")
def include() -> str:
    """The folder of ONNX Runtime's C header."""
    line = [sys.executable, str(ROOT / "scripts" / "windows_apps.py"), "--headers"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _cmake(*words: str | Path) -> str:
    done = subprocess.run(["cmake", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _configure(source: Path, build: Path, *more: str) -> str:
    system = ("-G", "Ninja", "-DCMAKE_SYSTEM_NAME=Windows", f"-DCMAKE_CXX_COMPILER={COMPILER}")
    return _cmake("-S", source, "-B", build, *system, *more)


@pytest.mark.dml  # whose runs see the cache, where the header is
def test_it_builds_stages_installs_and_is_found(proved: Path, tmp_path: Path, include: str) -> None:
    app, build, prefix = tmp_path / "app", tmp_path / "build", tmp_path / "prefix"
    dmlprep.package_model(proved, out=app, language="cpp", unproven=True)
    put_libraries(tmp_path)
    libraries = [f"-DONNXRUNTIME_DLL={tmp_path / _DLLS[0]}", f"-DDIRECTML_DLL={tmp_path / _DLLS[1]}"]
    _configure(app, build, f"-DONNXRUNTIME_INCLUDE={include}", *libraries, f"-DCMAKE_INSTALL_PREFIX={prefix}")
    said = _cmake("--build", build)
    assert "warning" not in said
    assert {*_MODEL, *_DLLS, "sample.exe", "sample_d3d12.exe"} <= {p.name for p in build.iterdir()}
    for name in ("sample.exe", "sample_d3d12.exe"):
        assert not any(dll.startswith("lib") for dll in read_image(build / name).imports)  # none of MinGW's own
    assert dmlprep.inspect_app(build).findings == []
    assert dmlprep.verify_package(app).others == []
    assert "no work to do" in _cmake("--build", build)

    _cmake("--install", build)
    consumer = tmp_path / "consumer"
    consumer.mkdir()
    (consumer / "CMakeLists.txt").write_text(_CONSUMER, encoding="utf-8")
    (consumer / "app.cpp").write_text(_PROGRAM, encoding="utf-8")
    dmlprep.package_model(proved, out=consumer / "second", language="cpp", unproven=True)
    shutil.rmtree(app)  # what is installed stands alone
    shutil.rmtree(build)
    _configure(consumer, build, f"-DCMAKE_PREFIX_PATH={prefix}")
    _cmake("--build", build)
    assert {*_DLLS, "app.exe"} <= {p.name for p in build.iterdir()}
    for folder in ("first", "second"):
        assert sorted(p.name for p in (build / "models" / folder).iterdir()) == sorted(_MODEL)
    report = dmlprep.inspect_app(build)
    assert sorted(model.folder for model in report.models) == ["models/first", "models/second"]
    assert report.findings == []


@pytest.mark.dml
def test_it_is_found_in_its_own_folder(proved: Path, tmp_path: Path, include: str) -> None:
    app, build, consumer = tmp_path / "app", tmp_path / "build", tmp_path / "consumer"
    for folder in (app, consumer / "second"):
        folder.parent.mkdir(exist_ok=True)
        dmlprep.package_model(proved, out=folder, language="cpp", unproven=True)
    (consumer / "CMakeLists.txt").write_text(_CONSUMER, encoding="utf-8")
    (consumer / "app.cpp").write_text(_PROGRAM, encoding="utf-8")
    put_libraries(tmp_path)
    libraries = [f"-DONNXRUNTIME_DLL={tmp_path / _DLLS[0]}", f"-DDIRECTML_DLL={tmp_path / _DLLS[1]}"]
    _configure(consumer, build, f"-Ddmlprep_model_DIR={app}", f"-DONNXRUNTIME_INCLUDE={include}", *libraries)
    _cmake("--build", build)
    assert {*_DLLS, "app.exe"} <= {p.name for p in build.iterdir()}
    assert not list(build.rglob("sample*.exe"))
    assert sorted(p.name for p in (build / "models" / "first").iterdir()) == sorted(_MODEL)


def test_without_the_header_it_says_where_that_is(proved: Path, tmp_path: Path) -> None:
    dmlprep.package_model(proved, out=tmp_path / "app", language="cpp", unproven=True)
    system = ("-DCMAKE_SYSTEM_NAME=Windows", f"-DCMAKE_CXX_COMPILER={COMPILER}")
    line = ["cmake", "-S", str(tmp_path / "app"), "-B", str(tmp_path / "build"), "-G", "Ninja", *system]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "set ONNXRUNTIME_INCLUDE" in done.stderr
