"""The languages that a package can be for, and the files that each gets besides the model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

from dmlprep.core.errors import UsageError

_LOADER = ("app_errors", "buckets", "device", "dxgi", "hresult", "loader", "ortoptions")
_PYTHON = {"sample.py": "sample", **{f"dmlprep_{name}.py": name for name in _LOADER}}
_CPP = (
    "dmlprep_model.h", "dmlprep_model.cpp", "sample.cpp", "d3d12_sample.h", "sample_d3d12.cpp", "CMakeLists.txt",
    "dmlprep_stage.cmake", "dmlprep_model-config.cmake",
)  # fmt: skip


@dataclass(frozen=True)
class Language:
    """One language: ``names`` of texts in its ``folder``, and ``modules`` of ``portable`` with their new names."""

    title: str
    folder: str
    names: tuple[str, ...]
    modules: tuple[tuple[str, str], ...] = ()

    def files(self) -> dict[str, bytes]:
        """Yield name and content of every file but the README."""
        own = resources.files("dmlprep.package") / self.folder
        texts = {name: (own / name).read_bytes().replace(b"\r\n", b"\n") for name in self.names}
        return texts | {name: _flat(module) for name, module in self.modules}

    def usage(self) -> str:
        """Return the README's part about this language."""
        return read_part(f"{self.folder}/usage.md")


_CSHARP = (
    "DmlprepModel.cs", "DmlprepBuckets.cs", "DmlprepContract.cs", "DmlprepAdapters.cs", "DmlprepErrors.cs",
    "DmlprepTensors.cs", "Sample.cs", "Sample.csproj",
)  # fmt: skip
LANGUAGES: dict[str, Language] = {
    "cpp": Language("C++", "cpp", _CPP),
    "csharp": Language("C#", "csharp", _CSHARP),
    "node": Language("Node", "node", ("dmlprep_model.js", "sample.js", "package.json")),
    "python": Language("Python", "python", ("requirements.txt",), tuple(_PYTHON.items())),
}
"""Languages by their words for ``--for``."""


def _flat(module: str) -> bytes:
    """Return the source of a ``portable`` module that imports ``dmlprep_NAME`` instead of relative modules."""
    text = (resources.files("dmlprep.portable") / f"{module}.py").read_text(encoding="utf-8")
    text = re.sub(r"^from \. import (\w+)$", r"import dmlprep_\1 as \1", text, flags=re.MULTILINE)
    return re.sub(r"\bfrom \.(\w+) import", r"from dmlprep_\1 import", text).encode()


def read_part(name: str) -> str:
    """Return a text of this package, by its path below it."""
    return (resources.files("dmlprep.package") / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def find_language(name: str) -> Language:
    """Return a language by the word for ``--for``."""
    if name not in LANGUAGES:
        raise UsageError(f"unknown language {name!r}", where="--for", fix=f"known: {', '.join(LANGUAGES)}")
    return LANGUAGES[name]
