"""Write a package for C# or C++ as a NuGet package: its files, and targets that copy the model next to the program.

Sources: NuGet's documentation of nuspec files, of ``build`` and ``buildTransitive``, and of ``contentFiles``; ECMA-376
part 2 (open packaging conventions) for ``[Content_Types].xml`` and ``_rels/.rels``.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from dmlprep.core._version import __version__
from dmlprep.core.errors import InputError, UsageError
from dmlprep.core.files import check_output, unreadable, unwritable
from dmlprep.core.files.reasons import pieces
from dmlprep.core.files.writing import Writer
from dmlprep.core.text.build_files import msbuild_text
from dmlprep.core.text.markup import xml_text
from dmlprep.package.contract import CONTRACT, DIGEST, SIGNATURE, Contract
from dmlprep.package.packing import nuget_version
from dmlprep.package.verifying import Verified, verify
from dmlprep.portable.printable import printable

_ID = re.compile(r"^[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*$")
_VERSION = re.compile(r"^(0|[1-9]\d*)(\.(0|[1-9]\d*)){1,3}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$")
_LONGEST_ID = 100
"""Largest number of characters of an id on nuget.org."""

_WHERE = "app"
"""The folder in the NuGet package for the files of the package."""
_PIECE = 1 << 20
_DAY = (1980, 1, 1, 0, 0, 0)
"""The date of all files in the archive: the earliest that ZIP allows, so that equal packages give equal bytes."""
_HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'
_SCHEMAS = "http://schemas.openxmlformats.org/package/2006"
_MANIFEST = "http://schemas.microsoft.com/packaging/2010/07/manifest"
_NUSPEC = "http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd"
_MSBUILD = "http://schemas.microsoft.com/developer/msbuild/2003"
_LOADER = {"csharp": ("Dmlprep", ".cs"), "cpp": ("dmlprep_model", ".cpp")}
"""Beginning and end of the names of a loader's source files, by language."""


@dataclass(frozen=True)
class NuGetRequest:
    """The request for a NuGet package; the fields are the arguments of ``dmlprep.api.write_nupkg``."""

    folder: Path
    out: Path
    name: str
    version: str
    authors: str = ""
    loader: bool = True
    force: bool = False


@dataclass(frozen=True)
class NuGetPackage:
    """A NuGet package that was written: the path of its file, and the contract of the package in it."""

    path: Path
    contract: Contract


def write_nupkg(request: NuGetRequest) -> NuGetPackage:
    """Verify a package, and write it as a NuGet package.

    Raises:
        UsageError: NuGet does not allow the id or version, ``authors`` has an unprintable character, or the package is
            for a language without NuGet.
        InputError: the package is damaged, was changed meanwhile, or ``loader`` is True and another version of dmlprep
            wrote the loader.
        OutputError: the file exists and ``force`` is False, or cannot be written.
    """
    if not _ID.fullmatch(request.name) or len(request.name) > _LONGEST_ID:
        fix = "letters, digits and _, with . or - between them: Contoso.Detector"
        raise UsageError(f"{request.name!r} is not a valid id of a NuGet package", where="--id", fix=fix)
    if not _VERSION.fullmatch(request.version):
        raise UsageError(f"{request.version!r} is not a valid version", where="--version", fix="1.2.3, or 1.2.3-beta.1")
    if printable(request.authors) != request.authors:
        raise UsageError("it has an unprintable character", where="--authors", fix="a name on one line")
    target = request.out / f"{request.name}.{request.version}.nupkg"
    check_output(target, force=request.force)
    verification = verify(request.folder)
    if verification.contract.language not in _LOADER:
        what = f"the package is for {verification.contract.language}, which does not use NuGet"
        raise UsageError(what, where=str(request.folder), fix="dmlprep package RUN -o APP --for csharp, or cpp")
    if request.loader and verification.loader != "compared":
        what = f"its loader is by {verification.contract.made_by}: dmlprep {__version__} cannot compare it"
        fix = "package the run again with this version; --no-loader excludes the loader from compilation"
        raise InputError(what, where=str(request.folder), code="DP822", fix=fix)
    try:
        with Writer() as writer:
            _write(request, verification, writer.open(target))
            writer.commit(force=request.force)
    except OSError as error:
        name = error.filename
        if name is not None and Path(name).parent == request.folder:
            raise unreadable(error, Path(name)) from error
        raise unwritable(error, target) from error
    return NuGetPackage(target, verification.contract)


def _write(request: NuGetRequest, verification: Verified, file: BinaryIO) -> None:
    contract = verification.contract
    texts = dict(_texts(request, contract))
    sources = [*contract.files, CONTRACT, DIGEST]
    if (request.folder / SIGNATURE).is_file():
        sources.append(SIGNATURE)
    inside = {f"{_WHERE}/{name}": request.folder / name for name in sources}
    if request.loader and contract.language == "csharp":
        inside |= {f"contentFiles/cs/any/{request.name}/{name}": request.folder / name for name in _loader(contract)}
    digests = {name: entry.sha256 for name, entry in contract.files.items()} | {CONTRACT: verification.digest}
    parts = sorted([*texts, *inside])
    with zipfile.ZipFile(file, "w") as archive:
        _put(archive, "[Content_Types].xml", _content_types(parts))
        for part in parts:
            if part in texts:
                _put(archive, part, texts[part])
            else:
                path = inside[part]
                if _copy(archive, part, path) != digests.get(path.name) and path.name in digests:
                    fix = "write the NuGet package again"
                    raise InputError("it changed during reading", where=str(path), code="DP822", fix=fix)


def _texts(request: NuGetRequest, contract: Contract) -> Iterator[tuple[str, str]]:
    """Yield path and text of each generated file of the NuGet package, except the list of content types."""
    name = request.name
    core = f"package/services/metadata/core-properties/{hashlib.sha256(name.encode()).hexdigest()[:32]}.psmdcp"
    relations = (f"{_MANIFEST}", f"/{name}.nuspec"), (f"{_SCHEMAS}/relationships/metadata/core-properties", f"/{core}")
    yield (
        "_rels/.rels",
        f'{_HEAD}<Relationships xmlns="{_SCHEMAS}/relationships">\n'
        + "".join(
            f'  <Relationship Type="{kind}" Target="{path}" Id="R{number}" />\n'
            for number, (kind, path) in enumerate(relations, 1)
        )
        + "</Relationships>\n",
    )
    yield f"{name}.nuspec", _nuspec(request, contract)
    yield core, _core_properties(request, contract)
    copied = _copied(name, contract)
    yield f"build/{name}.targets", copied
    yield f"buildTransitive/{name}.targets", copied
    if contract.language == "cpp":
        yield f"build/native/{name}.targets", _native(request, contract)
    yield "lib/netstandard2.0/_._", ""


def _loader(contract: Contract) -> list[str]:
    begin, end = _LOADER[contract.language]
    return [name for name in contract.files if name.startswith(begin) and name.endswith(end)]


def _describe(contract: Contract) -> str:
    text = f"{contract.model.file} for DirectML with its contract, made by {contract.made_by}."
    return text + "".join(f" UNPROVEN: {one}." for one in contract.unproven)


def _nuspec(request: NuGetRequest, contract: Contract) -> str:
    needs = f'<dependency id="Microsoft.ML.OnnxRuntime.DirectML" version="{nuget_version(contract)}" />'
    frameworks = ["native0.0", ".NETStandard2.0"] if contract.language == "cpp" else [".NETStandard2.0"]
    groups = "".join(f'      <group targetFramework="{one}">{needs}</group>\n' for one in frameworks)
    compiled = (
        '    <contentFiles>\n      <files include="cs/any/**/*.cs" buildAction="Compile" />\n    </contentFiles>\n'
        if request.loader and contract.language == "csharp"
        else ""
    )
    return (
        f'{_HEAD}<package xmlns="{_NUSPEC}">\n  <metadata>\n'
        f"    <id>{request.name}</id>\n    <version>{request.version}</version>\n"
        f"    <authors>{xml_text(request.authors or request.name)}</authors>\n"
        "    <requireLicenseAcceptance>false</requireLicenseAcceptance>\n"
        f"    <description>{xml_text(_describe(contract))}</description>\n"
        f"    <tags>onnx directml</tags>\n    <dependencies>\n{groups}    </dependencies>\n{compiled}"
        "  </metadata>\n</package>\n"
    )


def _core_properties(request: NuGetRequest, contract: Contract) -> str:
    spaces = (
        'xmlns="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"'
    )
    return (
        f"{_HEAD}<coreProperties {spaces}>\n  <dc:creator>{xml_text(request.authors or request.name)}</dc:creator>\n"
        f"  <dc:description>{xml_text(_describe(contract))}</dc:description>\n"
        f"  <dc:identifier>{request.name}</dc:identifier>\n  <version>{request.version}</version>\n"
        "  <keywords>onnx directml</keywords>\n</coreProperties>\n"
    )


def _copied(name: str, contract: Contract) -> str:
    """Return MSBuild targets, as XML, that copy the model into a folder next to the built or published program.

    ``name`` is the name of that folder.
    """
    items = "".join(
        f"""    <None Include="$(MSBuildThisFileDirectory)..\\{_WHERE}\\{msbuild_text(file)}">
      <Link>{name}\\{msbuild_text(file)}</Link>
      <CopyToOutputDirectory>PreserveNewest</CopyToOutputDirectory>
      <CopyToPublishDirectory>PreserveNewest</CopyToPublishDirectory>
      <Visible>false</Visible>
    </None>
"""
        for file in contract.shipped_files
    )
    return f'{_HEAD}<Project xmlns="{_MSBUILD}">\n  <ItemGroup>\n{items}  </ItemGroup>\n</Project>\n'


def _native(request: NuGetRequest, contract: Contract) -> str:
    """Return MSBuild targets for C++ projects, as XML: they compile the loader, and copy the model after the build."""
    name, here = request.name, f"$(MSBuildThisFileDirectory)..\\..\\{_WHERE}\\"
    word = re.sub(r"\W", "_", name)
    files = "".join(f'    <{word}_File Include="{here}{msbuild_text(file)}" />\n' for file in contract.shipped_files)
    sources = map(msbuild_text, _loader(contract) if request.loader else ())
    loader = "".join(
        f'    <ClCompile Include="{here}{one}"><PrecompiledHeader>NotUsing</PrecompiledHeader></ClCompile>\n'
        for one in sources
    )
    unset = "'%(LanguageStandard)' == '' Or '%(LanguageStandard)' == 'Default'"
    return f"""{_HEAD}<Project xmlns="{_MSBUILD}">
  <ItemDefinitionGroup>
    <ClCompile>
      <AdditionalIncludeDirectories>{here};%(AdditionalIncludeDirectories)</AdditionalIncludeDirectories>
      <LanguageStandard Condition="{unset}">stdcpp17</LanguageStandard>
    </ClCompile>
    <Link>
      <AdditionalDependencies>dxgi.lib;bcrypt.lib;%(AdditionalDependencies)</AdditionalDependencies>
    </Link>
  </ItemDefinitionGroup>
  <ItemGroup>
{loader}{files}  </ItemGroup>
  <Target Name="{word}_Copy" AfterTargets="Build">
    <Copy SourceFiles="@({word}_File)" DestinationFolder="$(OutDir){name}" SkipUnchangedFiles="true" />
  </Target>
</Project>
"""


def _content_types(parts: list[str]) -> str:
    known = {"rels": "application/vnd.openxmlformats-package.relationships+xml"}
    known["psmdcp"] = "application/vnd.openxmlformats-package.core-properties+xml"
    ends = {part.rpartition("/")[2].rpartition(".")[2] for part in parts if "." in part.rpartition("/")[2]}
    plain = [part for part in parts if "." not in part.rpartition("/")[2]]
    defaults = "".join(
        f'  <Default Extension="{xml_text(end)}" ContentType="{known.get(end, "application/octet")}" />\n'
        for end in sorted({end.lower() for end in ends})
    )
    overrides = "".join(f'  <Override PartName="/{quote(part)}" ContentType="application/octet" />\n' for part in plain)
    return f'{_HEAD}<Types xmlns="{_SCHEMAS}/content-types">\n{defaults}{overrides}</Types>\n'


def _entry(part: str) -> zipfile.ZipInfo:
    """Return a ZIP entry for a file of the NuGet package, with its name percent-encoded, as NuGet writes it."""
    name = part if part == "[Content_Types].xml" else quote(part)
    entry = zipfile.ZipInfo(name, _DAY)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _put(archive: zipfile.ZipFile, part: str, text: str) -> None:
    archive.writestr(_entry(part), text.encode())


def _copy(archive: zipfile.ZipFile, part: str, path: Path) -> str:
    """Copy a file of any size into the archive, under the path ``part``; return its SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    entry = _entry(part)
    entry.file_size = path.stat().st_size
    if entry.file_size > _PIECE:  # compressed weights are hardly smaller, and need minutes
        entry.compress_type = zipfile.ZIP_STORED
    with archive.open(entry, "w") as target:
        for piece in pieces(path):
            digest.update(piece)
            target.write(piece)
    return digest.hexdigest()
