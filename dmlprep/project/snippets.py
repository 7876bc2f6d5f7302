"""What build systems need to prepare models at each build, as text to paste (docs/build-systems.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from xml.sax.saxutils import quoteattr

from dmlprep.errors import UsageError
from dmlprep.project.starting import Suggestion
from dmlprep.record.documents import toml_value
from dmlprep.record.printable import printable

__all__ = ["snippet"]


def snippet(build: str, models: Sequence[Suggestion], results: str) -> str:
    """The text for one build system: ``cmake``, ``msbuild``, ``hatch``, ``github`` or ``pre-commit``.

    Raises:
        UsageError: another one.
    """
    if build not in _TEXTS:
        raise UsageError(f"unknown build system {build!r}", where="build", fix=", ".join(_TEXTS))
    return _TEXTS[build](models, results)


def _pins(one: Suggestion) -> list[str]:
    return [printable(f"{name}={size}") for name, size in one.sizes.items()]


def _stem(one: Suggestion) -> str:
    return printable(PurePosixPath(one.path).stem)


def _cmake(models: Sequence[Suggestion], results: str) -> str:
    lines = ["# CMakeLists.txt; configure with -Ddmlprep_DIR=<what python -m dmlprep.buildsys cmake prints>"]
    lines.append("find_package(dmlprep CONFIG REQUIRED)")
    for one in models:
        pins = f" PINS {' '.join(_pins(one))}" if one.sizes else ""
        lines.append(f'dmlprep_add_model({_stem(one)} MODEL "{printable(one.path)}" RECIPE {one.recipe}{pins})')
    return "\n".join(lines) + "\n"


def _msbuild(models: Sequence[Suggestion], results: str) -> str:
    lines = ["<!-- in the project file; the folder is what python -m dmlprep.buildsys msbuild prints -->"]
    lines += ['<Import Project="FOLDER\\dmlprep.targets" />', "<ItemGroup>"]
    for one in models:
        pins = f" Pins={quoteattr(';'.join(_pins(one)))}" if one.sizes else ""
        path = quoteattr(printable(one.path).replace("/", "\\"))
        lines.append(f'  <DmlprepModel Include={path} Recipe="{one.recipe}"{pins} />')
    return "\n".join([*lines, "</ItemGroup>"]) + "\n"


def _hatch(models: Sequence[Suggestion], results: str) -> str:
    lines = ["# pyproject.toml; [build-system] requires hatchling and dmlprep"]
    for one in models:
        lines += ["[[tool.hatch.build.targets.wheel.hooks.dmlprep.models]]", f"source = {toml_value(one.path)}"]
        lines += [f"into = {toml_value(f'mypackage/{_stem(one)}')}", f"recipe = {toml_value(one.recipe)}"]
        lines += [f"pins = {toml_value(one.sizes)}"] if one.sizes else []
    return "\n".join(lines) + "\n"


def _github(models: Sequence[Suggestion], results: str) -> str:
    return f"""# .github/workflows/models.yml, among the steps of a job that has dmlprep
- run: dmlprep prepare --format github
- uses: actions/upload-artifact@v4
  with:
    name: models
    path: {printable(results)}
"""


def _pre_commit(models: Sequence[Suggestion], results: str) -> str:
    return """# .pre-commit-config.yaml, where dmlprep is installed
repos:
  - repo: local
    hooks:
      - id: dmlprep-check
        name: check ONNX models for DirectML
        entry: dmlprep check --fail-on-cpu
        language: system
        files: \\.onnx$
        require_serial: true
"""


_TEXTS: dict[str, Callable[[Sequence[Suggestion], str], str]] = {
    "cmake": _cmake,
    "msbuild": _msbuild,
    "hatch": _hatch,
    "github": _github,
    "pre-commit": _pre_commit,
}
