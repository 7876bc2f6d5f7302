"""The loader for C#: compiled and run by Mono with a stand-in for ONNX Runtime's assembly, and its project file."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dmlprep
from dmlprep.core.text.build_files import msbuild_text
from dmlprep.package import LANGUAGES
from dmlprep.portable.sample import example

HERE = Path(__file__).resolve().parent / "csharp"
STAND_IN = HERE / "stand_in.cs"
_LOADER = tuple(name for name in LANGUAGES["csharp"].names if name.startswith("Dmlprep"))
_REFERENCES = ("System.Runtime.Serialization", "System.Xml", "System.Xml.Linq", "System.Core")

needs_mono = pytest.mark.skipif(
    shutil.which("mcs") is None or shutil.which("mono") is None, reason="needs Mono: mono-mcs and mono-runtime"
)


@pytest.fixture(scope="module")
def package(proved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("csharp") / "app"
    dmlprep.package_model(proved, out=folder, language="csharp", unproven=True)
    return folder


def compiled(out: Path, sources: list[Path]) -> Path:
    """A program of C# 7.2, without a warning."""
    references = [f"-r:{name}" for name in _REFERENCES]
    line = ["mcs", "-langversion:7.2", "-warnaserror", "-define:STAND_IN", f"-out:{out}", *references]
    done = subprocess.run([*line, *map(str, sources)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def ran(program: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    line = ["mono", str(program), *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


@needs_mono
def test_what_the_loader_promises(package: Path, tmp_path: Path) -> None:
    app = Path(shutil.copytree(package, tmp_path / "app"))
    sources = [app / name for name in _LOADER] + [STAND_IN, HERE / "checks.cs"]
    done = ran(compiled(tmp_path / "checks.exe", sources), app)
    assert done.stdout == "good\n", done.stdout + done.stderr


@needs_mono
def test_the_sample_makes_the_numbers_of_the_others(package: Path, tmp_path: Path) -> None:
    sources = [package / name for name in (*_LOADER, "Sample.cs")] + [STAND_IN]
    done = ran(compiled(tmp_path / "sample.exe", sources), package, "dml", "0")
    assert done.returncode == 0, done.stderr
    device, numbers = done.stdout.splitlines()
    assert device == "device dml"
    given = example(json.loads((package / "model.json").read_bytes())["inputs"][0]).reshape(-1)
    # The stand-in hands on the first ten numbers that it gets.
    assert numbers == "logits 1x10 " + " ".join(f"{value:.6f}" for value in given[:8])


@needs_mono
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "has no format"),
        ('{"format": 2}', "is of another format"),
        ('{"format": "one"}', "has 'one' where a number should be"),
        ('{"format": 1, "model": {"file": "model.onnx"}}', "has no data"),
    ],
)
def test_a_contract_that_is_none(text: str, said: str, package: Path, tmp_path: Path) -> None:
    app = Path(shutil.copytree(package, tmp_path / "app"))
    (app / "model.json").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (app / "model.json.sha256").write_text(f"{digest}  model.json\n")
    sources = [app / name for name in (*_LOADER, "Sample.cs")] + [STAND_IN]
    done = ran(compiled(tmp_path / "sample.exe", sources), app)
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
