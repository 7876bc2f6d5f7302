"""Microsoft's own MSBuild builds projects with models: what is rebuilt when, and where the results go."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dmlprep.cli.buildsys import folder
from tests.cli.buildsys.tools import MODELS, RECIPE, TOOLS, Counted, Done, needs_tools, run, write_feed

_PROJECT = """<Project Sdk="Microsoft.NET.Sdk">
  <PropertyGroup>
    <TargetFramework>netcoreapp2.2</TargetFramework>
    <OutputType>{kind}</OutputType>
    <DisableImplicitFrameworkReferences>true</DisableImplicitFrameworkReferences>
    <RestoreSources>{source}</RestoreSources>
    <DmlprepExecutable>{executable}</DmlprepExecutable>
  </PropertyGroup>
  <ItemGroup>
    <Reference Include="{framework}/System*.dll;{framework}/netstandard.dll" Private="false" />
    {items}
  </ItemGroup>
  {more}
</Project>
"""
_MODELS = """
    <DmlprepModel Include="models\\residual_cnn.onnx" Recipe="tiny.toml" Pins="batch=1" Arguments="--device cpu" />
    <DmlprepModel Include="models\\sub\\residual_cnn.onnx" Recipe="tiny.toml" Settings="parity.seeds=1"
                  Feeds="feeds" Arguments="--device cpu" />
    <DmlprepModel Include="models\\external_cnn.onnx" Recipe="tiny.toml"
                  Arguments="--device cpu --external-data" />"""


class _Solution:
    """Projects in a folder, and MSBuild for them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dmlprep = Counted(path / "command")
        self.packages = path / "packages"
        self.packages.mkdir()

    def write(self, name: str, items: str, *, kind: str = "Library", imported: bool = True) -> Path:
        project = self.path / name
        project.mkdir(exist_ok=True)
        body = "static void Main() { }" if kind == "Exe" else ""
        (project / "code.cs").write_text(f"class C {{ {body} }}")
        more = f'<Import Project="{folder("msbuild")}/dmlprep.targets" />' if imported else ""
        (project / f"{name}.csproj").write_text(
            _PROJECT.format(
                kind=kind,
                source=self.packages,
                executable=self.dmlprep.path,
                framework=TOOLS.framework,
                items=items,
                more=more,
            )
        )
        return project

    def build(self, project: Path, *arguments: str) -> Done:
        environment = {
            **TOOLS.environment(),
            "HOME": str(self.path / "home"),
            "NUGET_PACKAGES": str(self.path / "home" / "packages"),
        }
        return run(TOOLS.dotnet, "msbuild", "-nologo", "-v:m", *arguments, cwd=project, env=environment)


@pytest.fixture
def solution(tmp_path: Path) -> _Solution:
    (tmp_path / "command").mkdir()
    return _Solution(tmp_path)


def _fill(project: Path) -> None:
    (project / "models" / "sub").mkdir(parents=True)
    (project / "feeds").mkdir()
    for name in ("residual_cnn.onnx", "external_cnn.onnx", "external_cnn.onnx.data"):
        shutil.copyfile(MODELS / name, project / "models" / name)
    shutil.copyfile(MODELS / "residual_cnn.onnx", project / "models" / "sub" / "residual_cnn.onnx")
    write_feed(project / "feeds" / "one.npz", 1)
    (project / "tiny.toml").write_text(RECIPE)


def _outputs(project: Path, *below: str) -> set[str]:
    out = project.joinpath("bin", "Debug", "netcoreapp2.2", *below)
    return {p.relative_to(out).as_posix() for p in out.glob("models/**/*.onnx*")}


_RESULTS = {
    "models/residual_cnn.onnx",
    "models/sub/residual_cnn.onnx",
    "models/external_cnn.onnx",
    "models/external_cnn.onnx.data",
}


@pytest.mark.builds
@needs_tools
@pytest.mark.slow
def test_each_kind_of_change_rebuilds_and_nothing_else(solution: _Solution) -> None:
    project = solution.write("app", _MODELS, kind="Exe")
    _fill(project)
    text = (project / "app.csproj").read_text()

    def rebuilds(*names: str) -> None:
        done = solution.build(project)
        assert done.code == 0, done.out
        assert solution.dmlprep.taken() == sorted(names)
        assert _outputs(project) == _RESULTS

    def edit(old: str, new: str) -> None:
        assert old in text
        (project / "app.csproj").write_text(text.replace(old, new))

    first = solution.build(project, "-restore")
    assert first.code == 0, first.out
    assert solution.dmlprep.taken() == ["external_cnn.onnx", "residual_cnn.onnx", "residual_cnn.onnx"]
    rebuilds()
    os.utime(project / "models" / "residual_cnn.onnx")
    rebuilds("residual_cnn.onnx")
    os.utime(project / "models" / "external_cnn.onnx.data")
    rebuilds("external_cnn.onnx")
    write_feed(project / "feeds" / "one.npz", 2)
    rebuilds("residual_cnn.onnx")
    write_feed(project / "feeds" / "two.npz", 3)  # a file more in a folder of feeds
    rebuilds("residual_cnn.onnx")
    edit('Pins="batch=1"', 'Pins="batch=2"')
    rebuilds("residual_cnn.onnx")
    edit('Recipe="tiny.toml" Pins="batch=1"', 'Recipe="@check-only" Pins=""')
    rebuilds("residual_cnn.onnx")
    edit('"parity.seeds=1"', '"parity.seeds=1" Release="ort-1.24"')
    rebuilds("residual_cnn.onnx", "residual_cnn.onnx")  # and the first is as it was before
    edit('Settings="parity.seeds=1"', 'Settings="parity.seeds=2"')
    rebuilds("residual_cnn.onnx")
    next(project.glob("obj/**/external_cnn.onnx.data")).unlink()
    rebuilds("external_cnn.onnx")
    (project / "tiny.toml").write_text(RECIPE + "[step.denote]\n")
    rebuilds("external_cnn.onnx", "residual_cnn.onnx", "residual_cnn.onnx")
    solution.dmlprep.install_another("0.1.9")
    rebuilds("external_cnn.onnx", "residual_cnn.onnx", "residual_cnn.onnx")
    rebuilds()

    # A model that leaves the project leaves the output folder too; Clean leaves nothing.
    edit(_MODELS[_MODELS.index('    <DmlprepModel Include="models\\external') :], "")
    assert solution.build(project).code == 0
    assert _outputs(project) == {name for name in _RESULTS if "external" not in name}
    done = solution.build(project, "-t:Clean")
    assert done.code == 0, done.out
    assert _outputs(project) == set()
    assert not list(project.glob("obj/**/dmlprep"))


@pytest.mark.builds
@needs_tools
@pytest.mark.slow
def test_a_model_that_fails_fails_the_build_until_it_is_mended(solution: _Solution) -> None:
    model = '<DmlprepModel Include="models/residual_cnn.onnx" Recipe="tiny.toml" Pins="{}" Arguments="--device cpu" />'
    project = solution.write("app", model.format("batch=1"))
    _fill(project)
    assert solution.build(project, "-restore").code == 0
    solution.dmlprep.taken()
    for _ in range(2):
        solution.write("app", model.format("bach=1"))
        done = solution.build(project)
        assert done.code == 1
        path = project / "models" / "residual_cnn.onnx"
        assert f"{path} : error DP203: step pin: pin bach: the model has no dimension 'bach'" in done.out
        assert solution.dmlprep.taken() == ["residual_cnn.onnx"]
    solution.write("app", model.format("batch=1"))
    assert solution.build(project).code == 0
    assert solution.dmlprep.taken() == ["residual_cnn.onnx"]
    # An option that dmlprep does not know, and a command that is not there.
    solution.write("app", model.format("batch=1").replace("--device cpu", "--colour"))
    done = solution.build(project)
    assert done.code == 1
    assert "No such option" in done.out
    done = solution.build(project, "-p:DmlprepExecutable=/nowhere/dmlprep")
    assert done.code == 1
    assert "error : the command /nowhere/dmlprep was not found: pip install dmlprep" in done.out


@pytest.mark.builds
@needs_tools
def test_two_models_never_share_a_place(solution: _Solution) -> None:
    outside = solution.path / "elsewhere"
    for name in ("one", "two"):
        (outside / name).mkdir(parents=True)
        shutil.copyfile(MODELS / "residual_cnn.onnx", outside / name / "net.onnx")
    items = "".join(f'<DmlprepModel Include="..\\elsewhere\\{name}\\net.onnx" />' for name in ("one", "two"))
    project = solution.write("app", items)
    done = solution.build(project, "-t:DmlprepPrepare")
    assert done.code == 1
    assert "would both be models\\net.onnx in the output folder: use another Link for one of them" in done.out
    for link, said in (("..\\net.onnx", "is outside the output folder"), ("net", "does not end in .onnx")):
        project = solution.write("app", f'<DmlprepModel Include="..\\elsewhere\\one\\net.onnx" Link="{link}" />')
        done = solution.build(project, "-t:DmlprepPrepare")
        assert done.code == 1
        assert said in done.out
    assert solution.dmlprep.taken() == []


@pytest.mark.builds
@needs_tools
@pytest.mark.parametrize("name", ["$(touch ran)", "`touch ran`", '" ; touch ran ; "', "%PATH%"])
def test_a_name_that_a_shell_would_run_is_refused(solution: _Solution, name: str) -> None:
    item = '<DmlprepModel Include="models/*.onnx" Recipe="tiny.toml" Feeds="feeds/*" Arguments="--device cpu" />'
    project = solution.write("app", item)
    _fill(project)
    (project / "models" / "residual_cnn.onnx").rename(project / "models" / f"{name}.onnx")
    done = solution.build(project, "-t:DmlprepPrepare")
    assert done.code == 1
    assert "unsafe name of the model" in done.out
    project = solution.write("app", item.replace("*.onnx", "external_cnn.onnx"))
    (project / "feeds" / "one.npz").rename(project / "feeds" / f"{name}.npz")
    done = solution.build(project, "-t:DmlprepPrepare")
    assert done.code == 1
    assert "unsafe name of the feed" in done.out
    assert not list(project.rglob("ran"))
    assert solution.dmlprep.taken() == []


@pytest.mark.builds
@needs_tools
@pytest.mark.slow
def test_models_reach_projects_that_refer_to_theirs_publish_and_packages(solution: _Solution) -> None:
    made = run(sys.executable, "-m", "dmlprep.cli.buildsys", "nuget", solution.packages, cwd=solution.path)
    assert made.code == 0, made.out
    version = Path(made.out.strip()).name.removeprefix("dmlprep.MSBuild.").removesuffix(".nupkg")
    refers = f'<PackageReference Include="dmlprep.MSBuild" Version="{version}" PrivateAssets="all" />'
    library = solution.write("lib", refers + _MODELS, imported=False)
    _fill(library)
    app = solution.write("app", '<ProjectReference Include="../lib/lib.csproj" />', kind="Exe", imported=False)
    done = solution.build(app, "-restore")
    assert done.code == 0, done.out
    assert _outputs(app) == _outputs(library) == _RESULTS
    done = solution.build(app, "-t:Publish")
    assert done.code == 0, done.out
    assert _outputs(app, "publish") == _RESULTS
    done = solution.build(library, "-t:Pack", f"-p:PackageOutputPath={solution.packages}")
    assert done.code == 0, done.out
    with zipfile.ZipFile(solution.packages / "lib.1.0.0.nupkg") as package:
        inside = {name for name in package.namelist() if ".onnx" in name}
    assert inside == {f"contentFiles/any/netcoreapp2.2/{name}" for name in _RESULTS}
    user = solution.write("user", '<PackageReference Include="lib" Version="1.0.0" />', imported=False)
    done = solution.build(user, "-restore")
    assert done.code == 0, done.out
    assert _outputs(user) == _RESULTS
    assert solution.dmlprep.taken() == ["external_cnn.onnx", "residual_cnn.onnx", "residual_cnn.onnx"]


_BARE = """<Project DefaultTargets="Build">
  <PropertyGroup><OutDir>out/</OutDir><IntermediateOutputPath>obj/</IntermediateOutputPath>
    <DmlprepExecutable>{executable}</DmlprepExecutable></PropertyGroup>
  <ItemGroup>
    <DmlprepModel Include="net.onnx" Recipe="@check-only" Arguments="--device cpu --external-data" />
  </ItemGroup>
  <Target Name="PrepareForBuild" />
  <Target Name="Build" DependsOnTargets="PrepareForBuild" />
  <Target Name="Clean" />
  <Target Name="CollectUpToDateCheckInputDesignTime" Returns="@(UpToDateCheckInput)">
    <Message Importance="high" Text="looks at %(UpToDateCheckInput.Filename)%(Extension)" />
  </Target>
  <Import Project="{targets}" />
</Project>
"""


@pytest.mark.builds
@needs_tools
def test_projects_without_content_items_copy_and_clean(solution: _Solution) -> None:
    # C++ projects have these targets, and copy no Content. The file is that of projects that refer to the package
    # through another one, which this SDK is too old for.
    made = run(sys.executable, "-m", "dmlprep.cli.buildsys", "nuget", solution.packages, cwd=solution.path)
    with zipfile.ZipFile(made.out.strip()) as package:
        package.extractall(solution.packages / "open")
    targets = solution.packages / "open" / "buildTransitive" / "dmlprep.MSBuild.targets"
    shutil.copyfile(MODELS / "residual_cnn.onnx", solution.path / "net.onnx")
    (solution.path / "app.vcxproj").write_text(_BARE.format(executable=solution.dmlprep.path, targets=targets))
    done = solution.build(solution.path, "app.vcxproj")
    assert done.code == 0, done.out
    assert sorted(p.name for p in (solution.path / "out").iterdir()) == ["net.onnx", "net.onnx.data"]
    asked = solution.build(
        solution.path, "app.vcxproj", "-t:CollectUpToDateCheckInputDesignTime", "-p:DesignTimeBuild=true"
    )
    assert {"looks at net.onnx", "looks at _version.py"} <= {line.strip() for line in asked.out.splitlines()}
    assert solution.dmlprep.taken() == ["net.onnx"]
    assert solution.build(solution.path, "app.vcxproj", "-t:Clean").code == 0
    assert not list((solution.path / "out").iterdir())
    assert not (solution.path / "obj" / "dmlprep").exists()


def test_msbuild_file_is_well_formed() -> None:
    root = ElementTree.parse(folder("msbuild") / "dmlprep.targets").getroot()
    assert root.tag.endswith("Project")


def test_the_nuget_package_is_the_same_each_time(tmp_path: Path) -> None:
    from dmlprep.cli.buildsys.nuget import write_package

    first = write_package(tmp_path)
    before = first.read_bytes()
    assert write_package(tmp_path).read_bytes() == before
    with zipfile.ZipFile(first) as package:
        names = set(package.namelist())
        ElementTree.fromstring(package.read("dmlprep.MSBuild.nuspec"))
    assert {"build/dmlprep.MSBuild.targets", "buildTransitive/dmlprep.MSBuild.targets"} <= names
