"""The default target is what is installed, and its reason is reported."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from dmlprep.runtime.default_target import default_target
from tests.fixtures_index import fixture
from tests.in_process import Run

CNN = fixture("residual_cnn").path


@pytest.mark.parametrize(
    ("package", "version", "expected"),
    [
        ("onnxruntime-directml", "1.24.4", ("ort-1.24", "onnxruntime-directml 1.24.4 is installed")),
        (
            "onnxruntime-windowsml",
            "1.28.3.202610130701",
            ("ort-1.28", "onnxruntime-windowsml 1.28.3.202610130701 is installed"),
        ),
        (
            "ort-nightly-directml",
            "1.99.0.dev20260101001",
            (
                "ort-1.30",
                "ort-nightly-directml 1.99.0.dev20260101001 is installed, and dmlprep knows no nearer release",
            ),
        ),
        (
            "onnxruntime-directml",
            "1.10.0",
            ("ort-1.15", "onnxruntime-directml 1.10.0 is installed, and dmlprep knows no nearer release"),
        ),
        ("onnxruntime-gpu", "1.24.4", ("ort-1.30", "the latest, because no DirectML is installed here")),
    ],
)
def test_a_package_with_directml_is_the_target(
    package: str, version: str, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(name: str) -> str:
        if name == package:
            return version
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", installed)
    assert default_target("win32") == expected


def test_other_systems_have_no_directml() -> None:
    assert default_target("darwin") == ("ort-1.30", "the latest, because no DirectML is installed here")


def _install(tmp_path: Path, *versions: str) -> None:
    """Put the marks of installed releases where ``run`` looks for the runtime."""
    for version in versions:
        folder = tmp_path / "no-runtime" / "dmlprep" / "runtime" / "releases" / version
        folder.mkdir(parents=True)
        (folder / "piece.json").write_text('{"libraries": {}}')


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has packages, no runtime of dmlprep")
def test_the_runtime_of_linux_is_the_target(run: Run, tmp_path: Path) -> None:
    _install(tmp_path, "1.24.4")
    reason = "dmlprep's runtime with ONNX Runtime 1.24.4 is installed"
    shown = run("check", CNN).out.splitlines()
    assert "on DirectML (ort-1.24)" in shown[0]
    assert shown[-1] == f"target ort-1.24 ({reason}); details: -v"
    document = json.loads(run("check", CNN, "--format", "json").out)
    assert (document["target"], document["target_reason"]) == ("ort-1.24", reason)
    assert f"target ort-1.24 ({reason})" in run("check", CNN, "--plan").out
    assert run("explain", "@static-fp32", "-q").out.rstrip().endswith(", for ort-1.24")
    assert f"the default here is ort-1.24: {reason}" in run("explain", "targets").out
    prepared = run("prepare", CNN, "-o", tmp_path / "out", "--pin", "batch=1", "--device", "cpu")
    assert f"target ort-1.24 ({reason}); details: " in prepared.out
    record = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    assert (record["target"], record["target_reason"]) == ("ort-1.24", reason)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has packages, no runtime of dmlprep")
def test_the_release_that_a_proof_uses_by_default_is_preferred(run: Run, tmp_path: Path) -> None:
    _install(tmp_path, "1.24.4", "1.30.0")
    assert "(ort-1.30)" in run("check", CNN, "-q").out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has packages, no runtime of dmlprep")
def test_the_user_decides(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, "1.24.4")
    assert run("check", CNN, "--target", "latest").out.splitlines()[-1] == "target ort-1.30; details: -v"
    (tmp_path / "recipe.toml").write_text('doc = "Ours."\ntarget = "ort-1.20"\n[step.opset]\n')
    assert "target ort-1.20\n" in run("check", CNN, "--plan", "-r", tmp_path / "recipe.toml").out
    (tmp_path / "dmlprep.toml").write_text('target = "ort-1.22"\n')
    monkeypatch.chdir(tmp_path)
    assert "(ort-1.22)" in run("check", CNN, "-q").out
