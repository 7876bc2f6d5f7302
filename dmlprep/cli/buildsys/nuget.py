"""A NuGet package of the MSBuild targets, made locally: ``python -m dmlprep.cli.buildsys nuget FOLDER``.

Source of the layout: Microsoft Learn, "MSBuild .props and .targets in a package" and the .nuspec reference; ECMA-376
part 2 for the parts that every package has.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from dmlprep.cli.buildsys import folder
from dmlprep.core._version import __version__
from dmlprep.core.files import check_output
from dmlprep.core.files.writing import write_file

ID = "dmlprep.MSBuild"

_NUSPEC = f"""<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd">
  <metadata>
    <id>{ID}</id>
    <version>{__version__}</version>
    <authors>The dmlprep developers</authors>
    <license type="expression">MIT</license>
    <description>Prepares ONNX models for DirectML while a project is built. It runs the command dmlprep, which pip
installs.</description>
    <tags>onnx directml onnxruntime msbuild</tags>
  </metadata>
</package>
"""
_TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml" />
  <Default Extension="nuspec" ContentType="application/octet" />
  <Default Extension="targets" ContentType="application/octet" />
</Types>
"""
_RELATIONS = f"""<?xml version="1.0" encoding="utf-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
  <Relationship Type="http://schemas.microsoft.com/packaging/2010/07/manifest" Target="/{ID}.nuspec" Id="R1" />
</Relationships>
"""
_TRANSITIVE = f"""<Project xmlns="http://schemas.microsoft.com/developer/msbuild/2003">
  <Import Project="$(MSBuildThisFileDirectory)..\\build\\{ID}.targets" />
</Project>
"""


def write_package(into: Path) -> Path:
    """Write ``dmlprep.MSBuild.VERSION.nupkg`` into a folder, the same bytes each time; return its path."""
    targets = (folder("msbuild") / "dmlprep.targets").read_text(encoding="utf-8")
    # NuGet imports the file that is named as the package is. buildTransitive is for projects that refer to it through
    # another package or project.
    parts = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": _RELATIONS,
        f"{ID}.nuspec": _NUSPEC,
        f"build/{ID}.targets": targets,
        f"buildTransitive/{ID}.targets": _TRANSITIVE,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for name, text in parts.items():
            package.writestr(zipfile.ZipInfo(name), text.encode("utf-8"), zipfile.ZIP_DEFLATED)
    path = into / f"{ID}.{__version__}.nupkg"
    check_output(path, force=True)
    write_file(path, buffer.getvalue())
    return path
