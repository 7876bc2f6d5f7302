"""What an app's folder will load: beside the program or Windows' own, old, of another machine, changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import dmlprep
from dmlprep.core.errors import InputError
from tests.in_process import Run
from tests.package.images import put_image, put_libraries


@pytest.fixture
def shipped(app: Path) -> Path:
    """An app that is as it should be: the program, its libraries, the package."""
    put_image(app / "app.exe", library=False, imports=["KERNEL32.dll", "onnxruntime.dll"])
    put_libraries(app)
    return app


def codes(folder: Path, system: Path | None = None) -> list[str]:
    from dmlprep.package import inspect_app

    return [found.code for found in inspect_app(folder, system).findings]


def test_an_app_that_is_right(shipped: Path, run: Run) -> None:
    for name in ("README.md", "model.schema.json", "sample.py"):  # what need not ship
        (shipped / name).unlink()
    found = dmlprep.inspect_app(shipped)
    assert found.findings == []
    (place,) = found.places
    assert (place.folder, place.programs) == (".", ["app.exe"])
    assert (place.onnxruntime.version, place.onnxruntime.machine) == ("1.24.26.316", "x64")
    assert place.directml is not None
    assert (place.directml.path, place.directml.version) == ("DirectML.dll", "1.15.4.0")
    done = run("doctor", "--app", shipped)
    assert done.code == 0
    assert "DirectML.dll, version 1.15.4.0, x64" in done.out
    assert "the app finds all libraries" in done.out


def test_the_trap_of_system32(shipped: Path, tmp_path: Path, run: Run) -> None:
    (shipped / "onnxruntime.dll").unlink()
    assert codes(shipped) == ["DP830"]
    done = run("doctor", "--app", shipped, "--format", "json")
    assert done.code == 1
    said = json.loads(done.out)
    assert said["places"][0]["onnxruntime"] == {"path": "", "version": "?", "machine": "?"}
    assert said["findings"][0]["message"] == ". has no onnxruntime.dll, so app.exe loads the one of Windows"
    system = tmp_path / "System32"
    put_image(system / "onnxruntime.dll", delayed=["DirectML.dll"], version=(1, 1, 22, 1))
    assert codes(shipped, system) == ["DP830", "DP832"]


def test_a_program_in_another_folder_than_its_library(tmp_path: Path) -> None:
    app = tmp_path / "app"
    put_libraries(app / "lib")
    put_image(app / "bin" / "setup.exe", library=False)
    assert codes(app) == []  # it does not ask for the library
    put_image(app / "bin" / "helper.dll", delayed=["ONNXRuntime.dll"])
    assert codes(app) == ["DP830"]


def test_directml_of_windows(shipped: Path, tmp_path: Path) -> None:
    (shipped / "DirectML.dll").unlink()
    assert codes(shipped) == ["DP831"]
    put_image(tmp_path / "system" / "DirectML.dll", version=(1, 8, 0, 0))
    assert codes(shipped, tmp_path / "system") == ["DP831", "DP832"]


@pytest.mark.parametrize(
    ("name", "version", "wanted"),
    [
        ("onnxruntime.dll", (1, 2, 99, 0), ["DP832"]),
        ("onnxruntime.dll", (1, 100, 0, 0), []),
        ("DirectML.dll", (1, 4, 9, 0), ["DP832"]),
        ("DirectML.dll", (2, 0, 0, 0), []),
    ],
)
def test_versions_are_compared_as_numbers(
    shipped: Path, name: str, version: tuple[int, int, int, int], wanted: list[str]
) -> None:
    put_image(shipped / name, delayed=["DirectML.dll"], version=version)
    assert codes(shipped) == wanted


def test_another_architecture(shipped: Path) -> None:
    put_libraries(shipped, "arm64")
    (found,) = dmlprep.inspect_app(shipped).findings
    assert (found.code, found.message) == ("DP833", "app.exe is x64, but onnxruntime.dll is arm64")
    put_image(shipped / "app.exe", library=False, machine="arm64")
    put_image(shipped / "DirectML.dll", machine="x64", version=(1, 15, 4, 0))
    assert codes(shipped) == ["DP833"]


def test_libraries_that_cannot_do_it(shipped: Path) -> None:
    put_image(shipped / "onnxruntime.dll", version=(1, 24, 0, 0))
    assert codes(shipped) == ["DP834"]  # the package for the CPU
    put_libraries(shipped)
    put_image(shipped / "onnxruntime_providers_cuda.dll")
    (found,) = dmlprep.inspect_app(shipped).findings
    assert (found.code, found.severity) == ("DP834", "warning")
    put_image(shipped / "onnxruntime_providers_shared.dll")
    assert codes(shipped) == []
    (shipped / "DirectML.dll").write_bytes(b"MZ, or so it says")
    assert codes(shipped) == ["DP834"]


def test_the_visual_c_runtime(shipped: Path, run: Run) -> None:
    needs = ["MSVCP140.dll", "VCRUNTIME140.dll"]
    put_image(shipped / "onnxruntime.dll", imports=needs, delayed=["DirectML.dll"], version=(1, 24, 0, 0))
    assert codes(shipped) == ["DP835"]
    assert run("doctor", "--app", shipped).code == 0
    for name in needs:
        put_image(shipped / name)
    assert codes(shipped) == []


def test_a_model_that_is_not_the_package_s(shipped: Path, run: Run) -> None:
    (shipped / "model.onnx").write_bytes(b"another")
    done = run("doctor", "--app", shipped)
    assert done.code == 1
    assert "error: model.onnx: it has 7 bytes" in done.out
    (shipped / "model.onnx").unlink()
    assert codes(shipped) == ["DP822"]
    (shipped / "model.json").write_text("{}")
    assert codes(shipped) == ["DP822"]
    (shipped / "model.json.sha256").unlink()  # now it is any program's model.json
    assert codes(shipped) == []


def test_node_and_python_load_theirs_by_the_path(tmp_path: Path, made: Path) -> None:
    app = tmp_path / "app"
    shutil.copytree(made, app / "model")
    put_libraries(app / "node_modules" / "x64")
    site = app / "site" / "capi"
    put_libraries(site)
    put_image(site / "onnxruntime_pybind11_state.pyd", delayed=["DirectML.dll"])
    found = dmlprep.inspect_app(app)
    assert found.findings == []
    assert [(one.onnxruntime.path.rpartition("/")[2], one.onnxruntime.version) for one in found.places] == [
        ("onnxruntime.dll", "1.24.26.316"),
        ("onnxruntime_pybind11_state.pyd", "1.24.26.316"),
    ]


@pytest.mark.parametrize("what", ["nothing", "a file", "empty", "a stranger's model.json"])
def test_what_is_no_app(tmp_path: Path, what: str, run: Run) -> None:
    folder = tmp_path / "app"
    if what == "a file":
        folder.write_bytes(b"")
    elif what != "nothing":
        folder.mkdir()
    if what == "a stranger's model.json":
        (folder / "model.json").write_text('{"format": "mine"}')
    assert run("doctor", "--app", folder).code == InputError.exit_code


@pytest.mark.dml
def test_the_libraries_of_a_real_release() -> None:
    layout = pytest.importorskip("dmlprep.runtime.linux.layout").Layout.of_user()
    seen = [path.parent for path in layout.home.glob("releases/*/onnxruntime.dll")]
    if not seen:
        pytest.skip("no DirectML runtime is installed")
    for folder in seen:
        (place,) = dmlprep.inspect_app(folder).places
        assert place.onnxruntime.version.split(".")[:2] == folder.name.split(".")[:2]
        assert place.onnxruntime.machine == "x64"
        assert place.directml is not None
        assert place.directml.version.startswith("1.")
