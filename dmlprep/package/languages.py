"""The programming languages for which a package can be written, and the files that each gets besides the model."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from dmlprep.core.errors import UsageError
from dmlprep.package.contract import LOADER_FOLDER

_LOADER = (
    "app_errors", "app_files", "app_sessions", "buckets", "device", "dxgi", "hresult", "loader", "ortoptions",
    "vendors",
)  # fmt: skip
_PYTHON = {
    "sample.py": "sample",
    f"{LOADER_FOLDER}/__init__.py": "public",
    **{f"{LOADER_FOLDER}/{name}.py": name for name in _LOADER},
}
_CPP = (
    "dmlprep_model.h", "dmlprep_model.cpp", "dmlprep_model_contract.cpp", "dmlprep_model_runtime.cpp",
    "dmlprep_model_parts.h", "sample.cpp", "d3d12_sample.h", "sample_d3d12.cpp", "CMakeLists.txt",
    "dmlprep_stage.cmake", "dmlprep_model-config.cmake",
)  # fmt: skip


@dataclass(frozen=True)
class Language:
    """One programming language for packages, and the source files of its loader and sample.

    Attributes:
        title: name of the language for people.
        folder: folder of its texts in this Python package.
        names: names of the texts in that folder that a package gets.
        modules: modules of ``dmlprep.portable`` that a package gets, as pairs: new file name, and name of the module.
    """

    title: str
    folder: str
    names: tuple[str, ...]
    modules: tuple[tuple[str, str], ...] = ()

    def files(self) -> dict[str, bytes]:
        """Return every file of the language but the README, by name: bytes with unfilled words like ``@NUGET@``."""
        own = resources.files("dmlprep.package") / self.folder
        texts = {name: (own / name).read_bytes().replace(b"\r\n", b"\n") for name in self.names}
        return texts | {name: _module(name, module) for name, module in self.modules}

    def usage(self) -> str:
        """Return the Markdown text about this language for the README of a package."""
        return read_part(f"{self.folder}/usage.md")


_CSHARP = (
    "DmlprepModel.cs", "DmlprepBuckets.cs", "DmlprepContract.cs", "DmlprepAdapters.cs", "DmlprepErrors.cs",
    "DmlprepTensors.cs", "Sample.cs", "Sample.csproj",
)  # fmt: skip
_NODE = (
    "dmlprep_model.cjs", "dmlprep_model.d.cts", "dmlprep_model.mjs", "dmlprep_model.d.mts", "sample.mjs",
    "package.json",
)  # fmt: skip
LANGUAGES: dict[str, Language] = {
    "cpp": Language("C++", "cpp", _CPP),
    "csharp": Language("C#", "csharp", _CSHARP),
    "node": Language("Node", "node", _NODE),
    "python": Language("Python", "python", ("requirements.txt", f"{LOADER_FOLDER}/py.typed"), tuple(_PYTHON.items())),
}
"""The languages by the word that the user writes after ``--for``."""


def _module(name: str, module: str) -> bytes:
    """Return the source, as bytes, of a module of ``dmlprep.portable`` for the file ``name`` of a package.

    In the loader's folder it is unchanged. A file next to this folder imports from it by name.
    """
    text = (resources.files("dmlprep.portable") / f"{module}.py").read_text(encoding="utf-8")
    return (text if "/" in name else text.replace("from .public import", f"from {LOADER_FOLDER} import")).encode()


def read_part(name: str) -> str:
    """Return the content of a text file in this Python package, by its relative path."""
    return (resources.files("dmlprep.package") / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def find_language(name: str) -> Language:
    """Return a language by the word after ``--for`` (``csharp``).

    Raises:
        UsageError: it is unknown.
    """
    if name not in LANGUAGES:
        raise UsageError(f"unknown language {name!r}", where="--for", fix=f"known: {', '.join(LANGUAGES)}")
    return LANGUAGES[name]
