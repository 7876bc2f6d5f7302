"""Run onnxruntime-genai's model builder in a child process: it converts a Hugging Face folder to a genai folder.

A genai folder has ONNX models and ``genai_config.json``. No code of the model's folder is run. A configuration that
names its own code (``auto_map``) is refused, and the builder must not trust any code. Weights are only read from
safetensors. The process stays offline and gets no token.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from dmlprep.core.errors import InputError, ToolFailed, UsageError
from dmlprep.core.files import Unfit, explain, parse_json, read_text
from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.process.tools import run_tool
from dmlprep.runtime.environment import python
from dmlprep.runtime.tools.onnxruntime_genai import PACKAGES

_MODULES = ("onnxruntime_genai", "torch", "transformers")

_PROBE = f"""
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import importlib.metadata as about, importlib.util as modules, json
found = {{}}
for name in {(*PACKAGES, "torch", "transformers")!r}:
    try:
        found[name] = about.version(name)
    except about.PackageNotFoundError:
        pass
missing = [name for name in {_MODULES!r} if modules.find_spec(name) is None]
print(json.dumps({{"versions": found, "missing": missing, "python": sys.version.split()[0]}}))
"""

_MOST_BYTES = 16 << 20
"""Limit for the size of a configuration, in bytes. A large vocabulary lists some hundred thousand tokens."""

_CODE = ("auto_map", "custom_pipelines")
"""Fields of Hugging Face's configurations that name code in the model's folder."""

_SHOWN_LINES = 6
"""Number of the builder's last output lines that an error shows."""

_HINTS = {
    "multi_cache": "config.json has an extended context (original_max_position_embeddings "
    "differs from max_position_embeddings) without long and short factors. "
    "Set both to the same number, or use a model with rope_scaling",
    "Unrecognized model": "the transformers of this environment does not support the model: install a newer one",
    "is not currently supported": "this builder does not support the model's "
    "architecture: install a newer onnxruntime-genai",
    "out of memory": "use a machine with more memory, or allow more: DMLPREP_MEMORY_LIMIT",
}
"""The fix for an error of the builder, by words in its text."""


@dataclass(frozen=True)
class Builder:
    """A Python that can run the builder, with the versions of Python and of its packages."""

    python: str
    versions: Mapping[str, str]


class _Probed(msgspec.Struct):
    python: str
    versions: dict[str, str]
    missing: list[str]


def find_builder(path: str = "") -> Builder:
    """Find a Python that can run the builder: the one in ``path``, or this one. Its packages are checked.

    Raises:
        UsageError: it cannot be started, or lacks a package.
    """
    program = path or sys.executable
    where = "--builder-python" if path else ""
    packages = "onnxruntime-genai torch transformers"
    fix = f"pass the Python of an environment with {packages} with --builder-python"
    try:
        done = run_tool([program, "-c", _PROBE], limit=60.0)
        if done.returncode or not done.stdout.strip():
            raise UsageError(f"{program} is not a working Python", where=where, fix=fix)
        probed = parse_json(done.stdout.splitlines()[-1], _Probed)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{program} cannot be run: {error}", where=where, fix=fix) from error
    if probed.missing:
        own = "" if path else f", or install them here: {python()} -m pip install {packages}"
        what = f"onnxruntime-genai's builder converts a Hugging Face model, but {program} lacks"
        raise UsageError(f"{what} {', '.join(probed.missing)}", where=where, fix=fix + own)
    return Builder(program, {"Python": probed.python, **probed.versions})


def check_source(folder: Path) -> dict[str, object]:
    """Check a Hugging Face folder, and return the content of its ``config.json``.

    A folder is refused if the builder would use its code or its pickled weights.

    Raises:
        InputError: the folder is missing or not a Hugging Face folder; DP876: it must not be given to the builder.
    """
    where = str(folder)
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        what, fix = explain(error, folder)
        raise InputError(what or str(error), where=where, fix=fix or "check the path") from error
    if "config.json" not in names:
        raise InputError("it has no config.json", where=where, fix="pass a Hugging Face or genai folder")
    if not any(name.endswith(".safetensors") for name in names):
        what = "it has no safetensors; dmlprep does not read other weights, which can contain code"
        fix = "save the model with model.save_pretrained(FOLDER, safe_serialization=True)"
        raise InputError(what, where=where, code="DP876", fix=fix)
    documents = {}
    for name in names:
        if not name.endswith(".json") or name.endswith((".index.json", "tokenizer.json", "vocab.json")):
            continue
        documents[name] = _document(folder / name, needed=name == "config.json")
        for field in _CODE:
            if _names(documents[name], field):
                what = f"{name} names code of the model's folder ({field}), which is never run"
                fix = f"if transformers supports the model itself, remove {field} from {name}"
                raise InputError(what, where=where, code="DP876", fix=fix)
    return documents["config.json"]


def _names(document: object, field: str) -> bool:
    """Return whether a document has, at any depth, a field of this name with a non-empty value."""
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if value.get(field):
                return True
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return False


def _document(path: Path, *, needed: bool) -> dict[str, object]:
    fix = "download the folder again"
    try:
        document = parse_json(read_text(path, _MOST_BYTES), Any, lenient=True)
    except OSError as error:
        what, mend = explain(error, path)
        raise InputError(what or str(error), where=str(path), fix=mend or fix) from error
    except Unfit as error:
        raise InputError(str(error), where=str(path), code="DP876", fix=fix) from error
    if needed and not isinstance(document, dict):
        raise InputError("not a JSON object", where=str(path), code="DP876", fix=fix)
    return document if isinstance(document, dict) else {}


def build(source: Path, out: Path, builder: Builder, precision: Literal["fp16", "int4"], *, limit: float) -> None:
    """Build a genai folder for DirectML in ``out``, from a folder that ``check_source`` accepted.

    ``out`` does not exist, or is empty. ``limit``: time limit in seconds.

    Raises:
        ToolFailed: DP877, the builder failed or exceeded its time or memory; the message has its last lines.
    """
    process = Path(__file__).with_name("genai_builder_process.py")
    with temporary_folder("builder") as cache:
        command = [
            *(builder.python, str(process), "-i", os.path.abspath(source), "-o", os.path.abspath(out)),
            *("-p", precision, "-e", "dml", "-c", str(cache), "--extra_options", "hf_token=false", "hf_remote=false"),
        ]
        try:
            done = run_tool(command, limit=limit, variables=_offline(Path(cache)))
        except subprocess.TimeoutExpired as error:
            raise _failed(f"it took more than {limit:g} seconds", source, "", "raise --time-limit") from error
        except OSError as error:
            raise _failed(str(error), source, "") from error
    if done.returncode or not (out / "genai_config.json").is_file():
        raise _failed(f"it ended with exit code {done.returncode}", source, done.stderr or done.stdout)


def _offline(cache: Path) -> dict[str, str]:
    """Return environment variables that keep Hugging Face's packages away from the network and the user's data.

    They get no token and an empty cache.
    """
    on = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")
    none = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")
    return {**dict.fromkeys(on, "1"), **dict.fromkeys(none, ""), "HF_HOME": str(cache), "PYTHONUTF8": "1"}


def _failed(what: str, source: Path, output: str, fix: str = "") -> ToolFailed:
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception)\b|[\w.]+: ", line)), "")
    shown = f"{what}: {last}" if last else what
    if lines:
        shown += "\n    " + "\n    ".join(lines[-_SHOWN_LINES:])
    hint = next((text for word, text in _HINTS.items() if word in output), "")
    return ToolFailed(
        f"onnxruntime-genai's builder failed: {shown}",
        where=str(source),
        code="DP877",
        fix=hint or fix or "build the folder by hand with python -m onnxruntime_genai.models.builder, and prepare that",
    )
