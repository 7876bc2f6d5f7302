"""Loaders of packages with buckets: each takes the bucket that the loader for Python takes, for many sizes.

``scripts/windows_apps.py`` runs the same programs on the real DirectML, and those in C++ too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import dmlprep
from dmlprep.package import LANGUAGES
from dmlprep.portable.buckets import choose
from tests.fixtures_index import fixture
from tests.package.test_cmake import COMPILER
from tests.package.test_csharp import STAND_IN, compiled, needs_csharp, ran

HERE = Path(__file__).resolve().parent
SIZES = [{"height": 16, "width": 16}, {"height": 24, "width": 16}, {"height": 24, "width": 24}]
FILES = ["buckets.data", "height16-width16.onnx", "height24-width16.onnx", "height24-width24.onnx"]
SHIPPED = sorted(["model.json", "model.json.sha256", *FILES])


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package of three buckets for each language, which the CPU alone proved."""
    folder = tmp_path_factory.mktemp("buckets")
    done = dmlprep.prepare_buckets(
        fixture("depthwise_cnn").path, out=folder / "run", buckets=SIZES, pins={"batch": 1}, device="cpu"
    )
    assert done.exit_code == 0
    for language in LANGUAGES:
        dmlprep.package_model(folder / "run", out=folder / language, language=language, unproven=True)
    return folder


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """Sizes of the app's inputs, a line each: those up to above the largest bucket, and some that are wrong."""
    lines = [f"height={height} width={width}" for height in range(1, 27) for width in range(1, 27)]
    wrong = ["", "height=4", "depth=1 height=2 width=3", "height=0 width=4", "height=-1 width=4", "width=99 height=1"]
    path = tmp_path / "grid.txt"
    path.write_text("\n".join([*lines, *wrong]) + "\n")
    return path


def _expected(app: Path, grid: Path) -> list[str]:
    """What each line of sizes takes, or why none, then the last line of the programs."""
    buckets = json.loads((app / "model.json").read_bytes())["buckets"]
    lines = []
    for line in grid.read_text().splitlines():
        sizes = {name: int(size) for name, _, size in (word.partition("=") for word in line.split())}
        try:
            found = choose(buckets, sizes)
            lines.append(" ".join([found.name, *(f"{name}={count}" for name, count in found.padding.items())]))
        except ValueError as error:
            lines.append(str(error))
    return [*lines, "good"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_file_of_every_bucket_is_in_the_contract(language: str, packages: Path) -> None:
    app = packages / language
    contract = dmlprep.verify_package(app).contract
    assert [one.sizes for one in contract.buckets] == SIZES
    assert set(FILES) <= set(contract.files)
    assert sorted(contract.model_files) == FILES


def test_the_loader_for_python(packages: Path, grid: Path, tmp_path: Path) -> None:
    app = Path(shutil.copytree(packages / "python", tmp_path / "app"))
    line = [sys.executable, str(HERE / "python" / "buckets.py"), str(app), str(grid), "cpu"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines() == _expected(app, grid), done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_the_loader_for_node_on_a_stand_in(packages: Path, grid: Path, tmp_path: Path) -> None:
    app = Path(shutil.copytree(packages / "node", tmp_path / "app"))
    line = ["node", str(HERE / "node" / "buckets.cjs"), str(app), str(grid)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines() == _expected(app, grid), done.stderr


@needs_csharp
def test_the_loader_for_c_sharp_on_a_stand_in(packages: Path, grid: Path, tmp_path: Path) -> None:
    app = Path(shutil.copytree(packages / "csharp", tmp_path / "app"))
    loader = sorted(app.glob("Dmlprep*.cs"))
    done = ran(compiled(tmp_path / "buckets.dll", [*loader, STAND_IN, HERE / "csharp" / "buckets.cs"]), app, grid)
    assert done.stdout.splitlines() == _expected(app, grid), done.stdout[-2000:] + done.stderr
    sample = compiled(tmp_path / "sample.dll", [*loader, app / "Sample.cs", STAND_IN])
    done = ran(sample, app, "dml", "0", "height=20", "width=16")
    assert done.stdout.splitlines()[1] == "bucket height24-width16, padding height=4"
    done = ran(sample, app, "dml", "0", "height=25", "width=16")
    assert (done.returncode, "BadInputException: no bucket has room for height=25, width=16" in done.stderr) == (
        1,
        True,
    )


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
@pytest.mark.skipif(shutil.which("ninja") is None, reason="needs ninja")
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"needs {COMPILER}")
def test_cmake_stages_and_installs_every_bucket(packages: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "main.cpp").write_text("int main() {}\n")
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(staged LANGUAGES CXX)\nadd_executable(staged main.cpp)\n"
        f'set(DMLPREP_MODEL_FOLDER "{packages / "cpp"}")\ninclude("{packages / "cpp" / "dmlprep_stage.cmake"}")\n'
        "dmlprep_stage(staged model)\ndmlprep_files(files)\ninstall(FILES ${files} DESTINATION model)\n"
    )
    build = tmp_path / "build"
    system = ["-G", "Ninja", "-DCMAKE_SYSTEM_NAME=Windows", f"-DCMAKE_CXX_COMPILER={COMPILER}"]
    configured = ["-S", str(project), "-B", str(build), *system, f"-DCMAKE_INSTALL_PREFIX={tmp_path / 'prefix'}"]
    for line in (configured, ["--build", str(build)], ["--install", str(build)]):
        done = subprocess.run(["cmake", *line], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for folder in (build / "model", tmp_path / "prefix" / "model"):
        assert sorted(path.name for path in folder.iterdir()) == SHIPPED


@pytest.mark.parametrize("language", ["csharp", "cpp"])
def test_the_nuget_package_copies_every_bucket(language: str, packages: Path, tmp_path: Path) -> None:
    made = dmlprep.write_nupkg(packages / language, out=tmp_path, name="Contoso.Sizes", version="1.0.0")
    with zipfile.ZipFile(made.path) as archive:
        targets = archive.read(
            "build/Contoso.Sizes.targets" if language == "csharp" else "build/native/Contoso.Sizes.targets"
        )
        assert {f"app/{name}" for name in SHIPPED} <= set(archive.namelist())
    assert all(name in targets.decode() for name in SHIPPED)
