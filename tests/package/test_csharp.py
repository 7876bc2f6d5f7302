"""The loader for C#: compiled as C# 12, run on .NET 9 with a stand-in for ONNX Runtime's assembly; and its project."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dmlprep
from dmlprep.core.text.build_files import msbuild_text
from dmlprep.package import LANGUAGES
from dmlprep.portable.sample import example
from tests.cli.buildsys.tools import TOOLS

HERE = Path(__file__).resolve().parent / "csharp"
STAND_IN = HERE / "stand_in.cs"
_LOADER = tuple(name for name in LANGUAGES["csharp"].names if name.startswith("Dmlprep"))
_ENVIRONMENT = {**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}
_STRICT = ("-langversion:12", "-nullable:enable", "-warn:9999", "-warnaserror")


def needs_csharp(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that needs the compiler of C# 12."""
    reason = "the C# compiler is not there: python scripts/build_tools.py setup"
    marked: Callable[..., None] = pytest.mark.builds(
        pytest.mark.skipif(not (TOOLS.csharp / "csc.dll").exists(), reason=reason)(test)
    )
    return marked


@pytest.fixture(scope="module")
def package(proved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("csharp") / "app"
    dmlprep.package_model(proved, out=folder, language="csharp", unproven=True)
    return folder


def compiled(out: Path, sources: list[Path]) -> Path:
    """A program of C# 12, without a warning: of null values, of missing comments, and all others of the compiler."""
    options = ["-define:STAND_IN;TRACE", f"-out:{out}", f"-doc:{out.with_suffix('.xml')}"]
    line = [*TOOLS.compiler, *_STRICT, *TOOLS.references, *options, *map(str, sources)]
    done = subprocess.run(line, env=_ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    TOOLS.configure(out)
    return out


def ran(program: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    line = [str(TOOLS.csharp / "dotnet"), str(program), *map(str, words)]
    return subprocess.run(line, env=_ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def sample(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with the stand-in."""
    sources = [package / name for name in (*_LOADER, "Sample.cs")] + [STAND_IN]
    return compiled(tmp_path_factory.mktemp("sample") / "sample.dll", sources)


def _with_contract(app: Path, text: str) -> None:
    (app / "model.json").write_text(text)
    (app / "model.json.sha256").write_text(f"{hashlib.sha256(text.encode()).hexdigest()}  model.json\n")


def _with_original(app: Path) -> None:
    """Add an original for vendors' providers to a package."""
    raw = b"the original"
    (app / "original.onnx").write_bytes(raw)
    contract = json.loads((app / "model.json").read_bytes())
    contract["original"] = {"file": "original.onnx", "data": []}
    contract["files"]["original.onnx"] = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    _with_contract(app, json.dumps(contract))


@needs_csharp
def test_what_the_loader_promises(package: Path, tmp_path: Path) -> None:
    app = Path(shutil.copytree(package, tmp_path / "app"))
    _with_original(app)
    sources = [app / name for name in _LOADER] + [STAND_IN, HERE / "checks.cs"]
    done = ran(compiled(tmp_path / "checks.dll", sources), app)
    assert done.stdout == "good\n", done.stdout + done.stderr


@needs_csharp
def test_the_sample_makes_the_numbers_of_the_others(sample: Path, package: Path) -> None:
    done = ran(sample, package, "dml", "0")
    assert (done.returncode, done.stderr) == (1, "NOT as expected: logits\n")  # its numbers are those of the stand-in
    device, numbers, _ = done.stdout.splitlines()
    assert device == "device dml: ONNX Runtime keeps 2 of 2 inputs and outputs in memory of DirectML"
    given = example(json.loads((package / "model.json").read_bytes())["inputs"][0]).reshape(-1)
    # The stand-in hands on the first ten numbers that it gets.
    assert numbers == "logits 1x10 " + " ".join(f"{value:.6f}" for value in given[:8])


@needs_csharp
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "has no format"),
        ('{"format": 2}', "has a format that this loader does not read"),
        ('{"format": "one"}', "has 'one' where a number should be"),
        ('{"format": 1, "model": {"file": "model.onnx"}}', "has no data"),
        ('{"format": 1, "model": {"file": 7}}', "has '7' where a text should be"),
    ],
)
def test_a_contract_that_is_none(text: str, said: str, sample: Path, package: Path, tmp_path: Path) -> None:
    app = Path(shutil.copytree(package, tmp_path / "app"))
    _with_contract(app, text)
    done = ran(sample, app)
    assert done.returncode == 1
    assert done.stderr.startswith("PackageDamagedException: model.json ")
    assert said in done.stderr


def test_the_project_copies_what_the_app_ships(package: Path) -> None:
    contract = json.loads((package / "model.json").read_bytes())
    project = ElementTree.parse(package / "Sample.csproj")
    (copied,) = project.findall("./ItemGroup/None")
    shipped = ["model.json", "model.json.sha256", contract["model"]["file"], *contract["model"]["data"]]
    assert copied.get("Include") == ";".join(shipped)
    (compiled,) = project.findall("./ItemGroup/Compile")
    named = {name for name in LANGUAGES["csharp"].names if name.endswith(".cs")}
    assert set((compiled.get("Include") or "").split(";")) == named
    (reference,) = project.findall("./ItemGroup/PackageReference")
    assert reference.get("Include") == "Microsoft.ML.OnnxRuntime.DirectML"
    assert reference.get("Version") == "1.24.4"  # the last on NuGet; the target is newer


def test_names_as_msbuild_has_them() -> None:
    assert msbuild_text("a;b%c&d'e\"f.onnx") == "a%3Bb%25c&amp;d%27e&#34;f.onnx"
