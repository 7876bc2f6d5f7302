"""NuGet packages: their parts, what their targets copy, and what NuGet's own client makes of one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import onnx
import pytest

import dmlprep
from dmlprep.core.errors import InputError, OutputError, UsageError
from dmlprep.graph.model import Model
from dmlprep.package import LANGUAGES
from tests.in_process import Run
from tests.package.runs import run_of

_TYPES = "{http://schemas.openxmlformats.org/package/2006/content-types}"
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}"
_NUSPEC = "{http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd}"
_BUILD = "{http://schemas.microsoft.com/developer/msbuild/2003}"
_NAME = "Contoso.Detector"
_TINY = """<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) { y = Relu(x) }"""


@pytest.fixture(scope="module")
def packages(proved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package for each language that NuGet knows, one of them with a data file."""
    folder = tmp_path_factory.mktemp("nuget")
    dmlprep.package_model(proved, out=folder / "csharp", language="csharp", unproven=True)
    run = folder / "run"
    run.mkdir()
    Model.open(proved / "model.onnx").save(run / "model.onnx", external_over=0)
    dmlprep.package_model(run_of(run), out=folder / "cpp", language="cpp")
    return folder


def _written(packages: Path, language: str, out: Path, name: str = _NAME, *, loader: bool = True) -> Path:
    out.mkdir(exist_ok=True)
    return dmlprep.write_nupkg(packages / language, out=out, name=name, version="1.2.3", loader=loader).path


def _unpacked(file: Path, folder: Path) -> Path:
    """The parts as a client unpacks them: names decoded."""
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            path = folder / unquote(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
    return folder


@pytest.mark.parametrize("language", ["csharp", "cpp"])
def test_the_parts_are_those_of_a_package(packages: Path, tmp_path: Path, language: str) -> None:
    file = _written(packages, language, tmp_path / "feed")
    assert file.name == "Contoso.Detector.1.2.3.nupkg"
    inside = _unpacked(file, tmp_path / "inside")
    names = {path.relative_to(inside).as_posix() for path in inside.rglob("*") if path.is_file()}
    types = ElementTree.parse(inside / "[Content_Types].xml").getroot()
    known = {one.get("Extension") for one in types.findall(f"{_TYPES}Default")}
    overridden = {(one.get("PartName") or "")[1:] for one in types.findall(f"{_TYPES}Override")}
    untyped = {name for name in names if name.rpartition(".")[2].lower() not in known and name not in overridden}
    assert untyped == {"[Content_Types].xml"} - {"[Content_Types].xml" if "xml" in known else ""}
    relations = ElementTree.parse(inside / "_rels" / ".rels").getroot().findall(f"{_RELATIONS}Relationship")
    assert all((one.get("Target") or "")[1:] in names for one in relations)
    assert any(one.get("Target") == f"/{_NAME}.nuspec" for one in relations)
    assert dmlprep.verify_package(inside / "app").others == []
    assert not {name for name in names if name.endswith(".part")}


@pytest.mark.parametrize("language", ["csharp", "cpp"])
def test_the_nuspec(packages: Path, tmp_path: Path, language: str) -> None:
    inside = _unpacked(_written(packages, language, tmp_path / "feed"), tmp_path / "inside")
    about = ElementTree.parse(inside / f"{_NAME}.nuspec").getroot()[0]
    text = {one.tag.removeprefix(_NUSPEC): one.text for one in about}
    assert (text["id"], text["version"], text["authors"]) == (_NAME, "1.2.3", _NAME)
    assert ("UNPROVEN" in (text["description"] or "")) == (language == "csharp")
    groups = about.findall(f"{_NUSPEC}dependencies/{_NUSPEC}group")
    wanted = {"csharp": [".NETStandard2.0"], "cpp": ["native0.0", ".NETStandard2.0"]}[language]
    assert [group.get("targetFramework") for group in groups] == wanted
    needed = {(one.get("id"), one.get("version")) for group in groups for one in group}
    assert needed == {("Microsoft.ML.OnnxRuntime.DirectML", "1.24.4")}
    compiled = about.findall(f"{_NUSPEC}contentFiles/{_NUSPEC}files")
    assert [one.get("buildAction") for one in compiled] == (["Compile"] if language == "csharp" else [])


@pytest.mark.parametrize("where", ["build", "buildTransitive"])
def test_targets_copy_model_data_and_contract(packages: Path, tmp_path: Path, where: str) -> None:
    inside = _unpacked(_written(packages, "cpp", tmp_path / "feed"), tmp_path / "inside")
    items = ElementTree.parse(inside / where / f"{_NAME}.targets").getroot()[0]
    names = ["model.json", "model.json.sha256", "model.onnx", "model.onnx.data"]
    for one, name in zip(items, names, strict=True):
        assert one.get("Include") == f"$(MSBuildThisFileDirectory)..\\app\\{name}"
        assert (inside / where / ".." / "app" / name).is_file()
        fields = {field.tag.removeprefix(_BUILD): field.text for field in one}
        assert fields["Link"] == f"{_NAME}\\{name}"
        assert fields["CopyToOutputDirectory"] == fields["CopyToPublishDirectory"] == "PreserveNewest"


def test_native_targets_compile_the_loader_and_copy(packages: Path, tmp_path: Path) -> None:
    for loader in (True, False):
        file = _written(packages, "cpp", tmp_path / f"feed{loader}", loader=loader)
        project = ElementTree.parse(_unpacked(file, tmp_path / f"in{loader}") / "build" / "native" / f"{_NAME}.targets")
        compiled = [one.get("Include") for one in project.iter(f"{_BUILD}ClCompile") if one.get("Include")]
        own = "$(MSBuildThisFileDirectory)..\\..\\app\\"
        sources = ["dmlprep_model.cpp", "dmlprep_model_contract.cpp", "dmlprep_model_runtime.cpp"]
        assert compiled == ([f"{own}{name}" for name in sources] if loader else [])
        assert len(list(project.iter(f"{_BUILD}Contoso_Detector_File"))) == 4
        (copy,) = project.iter(f"{_BUILD}Copy")
        assert copy.get("DestinationFolder") == f"$(OutDir){_NAME}"


def test_names_of_files_in_targets_are_names_of_files(tmp_path: Path) -> None:
    """A contract of a stranger names them; its model keeps the name that it was prepared under."""
    name = "a&b;$(c)%41'@(d).onnx"
    texts = []
    for language in ("cpp", "csharp"):
        (tmp_path / language).mkdir()
        onnx.save(onnx.parser.parse_model(_TINY), tmp_path / language / "model.onnx")
        run = run_of(tmp_path / language)
        (run / "model.onnx").rename(run / name)
        (run / "run.json").rename(run / f"{name.removesuffix('.onnx')}.run.json")
        app = tmp_path / f"app {language}"
        dmlprep.package_model(run / name, out=app, language=language)
        file = dmlprep.write_nupkg(app, out=tmp_path, name=f"A.{language}", version="1.0").path
        inside = _unpacked(file, tmp_path / f"in {language}")
        assert (inside / "app" / name).is_file()
        texts += [path.read_text(encoding="utf-8") for path in inside.rglob("*.targets")]
        texts += [path.read_text(encoding="utf-8") for path in app.glob("*.csproj")]
    found = 0
    for text in texts:
        for one in ElementTree.fromstring(text).iter():
            for word in (one.get("Include") or "").split(";"):
                file_name = unquote(word).rpartition("\\")[2]
                if "model.json" not in file_name and file_name.endswith(".onnx"):
                    found += 1
                    assert file_name == name
    assert found == 6


@pytest.mark.skipif(shutil.which("xbuild") is None, reason="needs xbuild: Debian's mono-xbuild")
def test_a_build_system_reads_the_native_targets(packages: Path, tmp_path: Path) -> None:
    inside = _unpacked(_written(packages, "cpp", tmp_path / "feed"), tmp_path / "inside")
    project = tmp_path / "program.proj"
    project.write_text(
        f"""<Project DefaultTargets="Build" xmlns="{_BUILD[1:-1]}">
<PropertyGroup><OutDir>{tmp_path}/made/</OutDir></PropertyGroup>
<Target Name="Build"><Message Importance="high" Text="compiled: @(ClCompile)" /></Target>
<Import Project="{inside}/build/native/{_NAME}.targets" />
</Project>""",
        encoding="utf-8",
    )
    line = ["xbuild", str(project), "/nologo"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "app/dmlprep_model.cpp" in done.stdout
    copied = sorted(path.name for path in (tmp_path / "made" / _NAME).iterdir())
    assert copied == ["model.json", "model.json.sha256", "model.onnx", "model.onnx.data"]


def test_the_loader_for_c_sharp_is_compiled_once(packages: Path, tmp_path: Path) -> None:
    sources = {name for name in LANGUAGES["csharp"].names if name.startswith("Dmlprep")}
    for loader in (True, False):
        file = _written(packages, "csharp", tmp_path / f"feed{loader}", loader=loader)
        with zipfile.ZipFile(file) as archive:
            found = {name for name in archive.namelist() if name.startswith("contentFiles/cs/any/Contoso.Detector/")}
        assert {name.rpartition("/")[2] for name in found} == (sources if loader else set())


def test_the_same_package_gives_the_same_bytes(packages: Path, tmp_path: Path) -> None:
    first, second = (_written(packages, "csharp", tmp_path / name).read_bytes() for name in "ab")
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()


def test_a_signature_comes_along(proved: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    app, key = tmp_path / "app", tmp_path / "my.key"
    dmlprep.package_model(proved, out=app, language="csharp", unproven=True, sign=key)
    (app / "notes.txt").write_text("mine")
    inside = _unpacked(_written(tmp_path, "app", tmp_path / "feed"), tmp_path / "inside")
    found = dmlprep.verify_package(inside / "app", key=f"{key}.pub")
    assert (found.signature, found.others) == ("signed with this key", [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--id", "has space", "--version", "1.0.0"), "not a valid id of a NuGet package"),
        (("--id", "../up", "--version", "1.0.0"), "not a valid id of a NuGet package"),
        (("--id", "a" * 101, "--version", "1.0.0"), "not a valid id of a NuGet package"),
        (("--id", "Contoso", "--version", "1.0.0/../../x"), "is not a valid version"),
        (("--id", "Contoso", "--version", "1"), "is not a valid version"),
        (("--id", "Contoso", "--version", "1.0.0", "--authors", "a\nb"), "unprintable character"),
    ],
)
def test_names_that_are_none(packages: Path, tmp_path: Path, run: Run, options: tuple[str, ...], said: str) -> None:
    done = run("package", "nupkg", packages / "csharp", "-o", tmp_path, *options)
    assert done.code == UsageError.exit_code
    assert said in done.err
    assert list(tmp_path.glob("*.nupkg")) == []


def test_what_is_refused(packages: Path, made: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="for python, which does not use NuGet"):
        dmlprep.write_nupkg(made, out=tmp_path, name=_NAME, version="1.0.0")
    app = Path(shutil.copytree(packages / "csharp", tmp_path / "app"))
    raw = (app / "model.onnx").read_bytes()
    (app / "model.onnx").write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(InputError, match="it was changed"):
        dmlprep.write_nupkg(app, out=tmp_path, name=_NAME, version="1.0.0")
    assert list(tmp_path.glob("*.nupkg")) == []
    file = _written(packages, "csharp", tmp_path)
    with pytest.raises(OutputError, match="the file exists"):
        _written(packages, "csharp", tmp_path)
    dmlprep.write_nupkg(packages / "csharp", out=tmp_path, name=_NAME, version="1.2.3", force=True)
    assert file.is_file()


def test_the_command_says_where_the_model_will_lie(packages: Path, tmp_path: Path, run: Run) -> None:
    line = ("package", "nupkg", packages / "cpp", "-o", tmp_path, "--id", _NAME, "--version", "1.0.0-beta.1")
    done = run(*line)
    assert done.code == 0
    assert f"folder {_NAME} next to the program" in done.out
    said = json.loads(run(*line, "--force", "--format", "json").out)
    assert Path(said["path"]).name == "Contoso.Detector.1.0.0-beta.1.nupkg"


def _without_needs(file: Path, feed: Path) -> None:
    """The package in a feed, with a version that fits and without what it depends on."""
    name = "Microsoft.ML.OnnxRuntime.DirectML"
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(feed / f"{name}.1.24.4.nupkg", "w") as made:
        for part in archive.namelist():
            content = archive.read(part)
            if part == f"{name}.nuspec":
                text = content.decode().replace("<version>1.2.3<", "<version>1.24.4<")
                begin, end = text.index("<dependencies>"), text.index("</dependencies>") + len("</dependencies>")
                content = (text[:begin] + text[end:]).encode()
            made.writestr(part, content)


@pytest.mark.skipif(shutil.which("nuget") is None, reason="needs NuGet's client: Debian's nuget")
def test_nuget_s_own_client_installs_it(packages: Path, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    _written(packages, "csharp", feed)
    _without_needs(_written(packages, "csharp", tmp_path / "made", "Microsoft.ML.OnnxRuntime.DirectML"), feed)
    folders = ("-Source", str(feed), "-OutputDirectory", str(tmp_path / "out"))
    line = ["nuget", "install", _NAME, *folders, "-NonInteractive"]
    home = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=home, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert dmlprep.verify_package(tmp_path / "out" / f"{_NAME}.1.2.3" / "app").others == []
