"""Texts to paste into build systems, so that they prepare models at each build (docs/build-systems.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from dmlprep.core.errors import UsageError
from dmlprep.core.text.build_files import cmake_argument, msbuild_text, yaml_string
from dmlprep.core.text.documents import toml_value
from dmlprep.core.text.markup import xml_text
from dmlprep.pipeline.project.beginning import Suggestion
from dmlprep.portable.printable import printable


def snippet(build: str, models: Sequence[Suggestion], results: str) -> str:
    """Return the text to paste into a build system, so that it prepares the models; ``pre-commit`` only checks them.

    Args:
        build: ``cmake``, ``msbuild``, ``hatch``, ``github`` or ``pre-commit``.
        models: the models with their recipes and sizes.
        results: folder for prepared models.

    Raises:
        UsageError: the build system is unknown.
    """
    if build not in _TEXTS:
        raise UsageError(f"unknown build system {build!r}", where="build", fix=", ".join(_TEXTS))
    return _TEXTS[build](models, results)


def _pins(one: Suggestion) -> list[str]:
    return [f"{name}={size}" for name, size in one.sizes.items()]


def _stem(one: Suggestion) -> str:
    return PurePosixPath(one.path).stem


def _recipe(one: Suggestion, escaped: Callable[[str], str]) -> str:
    """Return the name of a built-in recipe as it is, and the path of another one escaped."""
    return one.recipe if re.fullmatch("@[a-z0-9-]+", one.recipe) else escaped(one.recipe)


def _cmake(models: Sequence[Suggestion], results: str) -> str:
    lines = ["# CMakeLists.txt; configure with -Ddmlprep_DIR=<what python -m dmlprep.cli.buildsys cmake prints>"]
    lines.append("find_package(dmlprep CONFIG REQUIRED)")
    for one in models:
        target = _NOT_OF_A_TARGET.sub("_", _stem(one))
        try:
            pins = f" PINS {' '.join(map(cmake_argument, _pins(one)))}" if one.sizes else ""
            path, recipe = cmake_argument(one.path), _recipe(one, cmake_argument)
        except ValueError:
            lines.append(f"# skipped: CMake does not allow its path, recipe or sizes: {printable(one.path)}")
            continue
        lines.append(f"dmlprep_add_model({target} MODEL {path} RECIPE {recipe}{pins})")
    return "\n".join(lines) + "\n"


_NOT_OF_A_TARGET = re.compile("[^A-Za-z0-9_.+-]")
"""Characters that names of CMake's targets cannot have (policy CMP0037)."""


def _msbuild(models: Sequence[Suggestion], results: str) -> str:
    lines = ["<!-- in the project file; the folder is what python -m dmlprep.cli.buildsys msbuild prints -->"]
    lines += ['<Import Project="FOLDER\\dmlprep.targets" />', "<ItemGroup>"]
    for one in models:
        names = _pins(one)
        # The targets pass both to a shell in double quotes, and split the sizes at semicolons.
        if any(
            _ACTS.search(name) or printable(name) != name for name in (one.path, one.recipe, *names)
        ) or ";" in "".join(names):
            shown = re.sub("-(?=-)", "- ", xml_text(one.path))  # "--" would end the comment
            lines.append(f"  <!-- skipped, because MSBuild does not allow its path, recipe or sizes: {shown} -->")
            continue
        pins = f' Pins="{";".join(map(msbuild_text, names))}"' if one.sizes else ""
        path = msbuild_text(one.path.replace("/", "\\"))
        lines.append(f'  <DmlprepModel Include="{path}" Recipe="{_recipe(one, msbuild_text)}"{pins} />')
    return "\n".join([*lines, "</ItemGroup>"]) + "\n"


_ACTS = re.compile('["%$`]')
"""Characters with a special meaning inside double quotes in sh or cmd."""


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
    path: {yaml_string(results)}
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
