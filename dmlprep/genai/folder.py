"""A folder of onnxruntime-genai: its config, the models that the config names, and the other files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from dmlprep.core.errors import InputError
from dmlprep.core.files import meant
from dmlprep.genai.config import CONFIG, GenaiConfig, read_config, stages
from dmlprep.graph.model import Model

SECTIONS = ("decoder", "encoder", "vision", "speech", "embedding", "joiner", "vad", "draft", "mtp")
"""Sections of ``model`` in the config that can name a model: its file under ``filename``, or stages in ``pipeline``."""

_STAGES = 64
"""Largest number of stages of all pipelines. Each is a model to open: a small config must not list thousands."""

_FILES = 10_000
_DEPTH = 8


class ModelFile(NamedTuple):
    """A model that the config of a folder names.

    Attributes:
        section: its section in the config: ``decoder``, ``encoder``, ``vision``, ``decoder.pipeline.NAME`` ...
        file: its path, below the folder. The file may be missing, or a link that leads out.
    """

    section: str
    file: Path


@dataclass(frozen=True)
class GenaiFolder:
    """A folder with a genai_config.json.

    Attributes:
        models: models that the config names, with names that stay inside the folder.
        other_files: the other files below the folder, without the config and the models, sorted: at most 8 levels deep,
            10,000 entries of each folder, no linked folders. Data files of models are among them:
            ``dmlprep.graph.model.input_watch.data_files`` names those of an opened model.
        outside: names of models that lead out of the folder, as pairs: place in the config, and name. Such files are
            never opened.
        opened: the models opened so far, by file.
    """

    path: Path
    config: GenaiConfig
    models: tuple[ModelFile, ...]
    other_files: tuple[Path, ...]
    outside: tuple[tuple[str, str], ...] = ()
    opened: dict[Path, Model] = field(default_factory=dict, repr=False, compare=False)

    def open(self, file: Path) -> Model:
        """Return a model of the folder, which is opened only once. Callers must not change it.

        Raises:
            InputError, ModelRefused, ToolFailed: as ``Model.open``.
        """
        if file not in self.opened:
            self.opened[file] = Model.open(file)
        return self.opened[file]

    def file_bytes(self) -> int:
        """Return the total size in bytes of its models and other files; files that cannot be read do not count."""
        total = 0
        for file in {*(model.file for model in self.models), *self.other_files}:
            with suppress(OSError):
                total += file.stat().st_size
        return total


def open_folder(path: Path | str) -> GenaiFolder:
    """Read the config of a folder of onnxruntime-genai, and list its files. No model is opened.

    Args:
        path: the folder, or its genai_config.json.

    Raises:
        InputError: it is not a folder, has no genai_config.json, or one that cannot be read or names too many models
            (DP840).
    """
    path = Path(path)
    if not path.is_dir():
        if path.name == CONFIG and path.is_file():
            return open_folder(path.parent)
        what = "this is a file" if path.exists() else "no such folder"
        raise InputError(what, where=str(path), fix=meant(path, f"pass a folder with {CONFIG}"), code="DP840")
    if not (path / CONFIG).exists():
        fix = "pass a folder from onnxruntime-genai's model builder"
        if exported := other_models(path):
            fix = f"onnxruntime-genai does not run it; dmlprep prepare {exported[0]} (docs/transformers-js.md)"
        raise InputError(f"the folder has no {CONFIG}", where=str(path), fix=fix, code="DP840")
    config = read_config(path / CONFIG)
    count = sum(1 for section in SECTIONS for _ in stages(config.table(f"model.{section}")))
    if count > _STAGES:
        text = f"its pipelines have {count} stages, more than {_STAGES}"
        raise InputError(text, where=str(path / CONFIG), fix="check that it is the right file", code="DP840")
    models, outside = [], []
    for section, name in named_models(config):
        if leads_out(name):
            outside.append((f"model.{section}.filename", name))
        else:
            models.append(ModelFile(section, path / name))
    known_files = {model.file for model in models} | {path / CONFIG}
    others = tuple(sorted(file for file in _files(path) if file not in known_files))
    return GenaiFolder(path, config, tuple(models), others, tuple(outside))


def other_models(path: Path) -> list[Path]:
    """Return the ONNX models of a folder in the layout of Optimum and transformers.js; empty if it has safetensors."""
    return [] if any(path.glob("*.safetensors")) else sorted([*path.glob("onnx/*.onnx"), *path.glob("*.onnx")])


def named_models(config: GenaiConfig) -> Iterator[tuple[str, str]]:
    """Yield the section and the file name of each model that a config names."""
    for section in SECTIONS:
        table = config.table(f"model.{section}")
        parts = list(stages(table))
        # A decoder of stages has no model of its own.
        if (name := _filename(table)) and not (parts and section == "decoder"):
            yield section, name
        for stage, inner in parts:
            if name := _filename(inner):
                yield f"{section}.pipeline.{stage}", name


def _filename(table: Any) -> str:
    name = table.get("filename")
    return name if isinstance(name, str) else ""


def leads_out(name: str) -> bool:
    """Return True if a path in a config is absolute, has a drive, a part ``..`` or a NUL, on Linux or on Windows."""
    return bool("\0" in name or re.match(r"[/\\]|[A-Za-z]:", name) or ".." in re.split(r"[/\\]", name))


def _files(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Yield files below a folder, at most 8 levels deep and 10,000 entries in each folder.

    Links to folders, and folders that cannot be read, are skipped.
    """
    try:
        with os.scandir(folder) as scan:
            entries = sorted(islice(scan, _FILES), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth < _DEPTH:
                yield from _files(Path(entry.path), depth + 1)
        elif (path := Path(entry.path)).is_file():  # DirEntry.is_file raises for a link to itself
            yield path
