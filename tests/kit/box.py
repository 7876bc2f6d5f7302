"""The other machine: a folder where a kit is extracted and run by an interpreter of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dmlprep.portable import integrity

__all__ = ["extract", "rewritten", "run_kit", "sealed", "stand_in"]

CPU = ("--provider", "CPUExecutionProvider")

_STAND_IN = """
import json, os, sys
import onnxruntime as ort
MODE = {mode!r}
real = ort.InferenceSession
HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "pid"), "w") as out:
    out.write(str(os.getpid()))
DML = [] if MODE == "missing" else ["DmlExecutionProvider"]
ort.get_available_providers = lambda: [*DML, "CPUExecutionProvider"]

class Session:
    def __init__(self, path, settings, providers, enable_fallback=True):
        assert not enable_fallback
        assert providers[0][0] == "DmlExecutionProvider", providers
        assert not settings.enable_mem_pattern
        assert settings.execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
        if MODE == "refused":
            raise RuntimeError("[DirectML] Exception(1) tid(1) 80070057 \\u30d1\\u30e9\\u30e1\\u30fc\\u30bf")
        self.own = real(path, settings, providers=["CPUExecutionProvider"])
    def get_providers(self):
        return ["CPUExecutionProvider"] if MODE == "left-out" else ["DmlExecutionProvider", "CPUExecutionProvider"]
    def get_inputs(self):
        return self.own.get_inputs()
    def get_outputs(self):
        return self.own.get_outputs()
    def end_profiling(self):
        path = self.own.end_profiling()
        if MODE != "idle":
            text = open(path).read().replace('"CPUExecutionProvider"', '"DmlExecutionProvider"')
            open(path, "w").write(text)
        return path
    def run(self, names, feeds):
        if MODE == "removed":
            raise RuntimeError("DmlCommittedResourceWrapper: 887A0005 The GPU device instance has been suspended.")
        if MODE == "crash":
            os.abort()
        if MODE == "hang":
            import time
            time.sleep(60)
        answers = self.own.run(names, feeds)
        if MODE == "wrong":
            answers = [a + a.dtype.type(1) for a in answers]
        return answers

ort.InferenceSession = Session
from dmlprep_kit import device, dxgi
def card(number):
    desc, name = dxgi.AdapterDesc(), "Radeon \\u2122 %d" % number
    desc.description[:len(name)] = [ord(letter) for letter in name]
    desc.vendor, desc.device, desc.luid[0] = 0x1002, 0x7480, number + 1
    return desc, 31 << 48 | 1 << 16 | 2
dxgi.read_dxgi = lambda: dxgi.Dxgi([card(0), card(1)], {{}})
device.library_facts = lambda: {{"directml": "1.15.4.0", "directml library": "beside onnxruntime"}}
"""


def extract(kit: Path, folder: Path) -> Path:
    """What Explorer's "extract all" does."""
    with zipfile.ZipFile(kit) as archive:
        archive.extractall(folder)
    return folder


def rewritten(source: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A zip with other members."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def sealed(members: dict[str, bytes], **fields: Any) -> None:
    """An edit by somebody who writes the seal anew."""
    result = {**json.loads(members["result.json"]), **fields}
    result["seal"] = integrity.seal(result)
    members["result.json"] = json.dumps(result).encode()


def stand_in(folder: Path, mode: str) -> dict[str, str]:
    """An environment whose onnxruntime behaves as onnxruntime-directml would, computed by the CPU provider.

    Args:
        mode: ``good``, or what goes wrong: ``missing`` (no DirectML provider), ``left-out``, ``idle``, ``refused``,
            ``removed``, ``crash``, ``hang``, ``wrong``.
    """
    folder.mkdir(exist_ok=True)
    lines = _STAND_IN.format(mode=mode).splitlines()
    # In the worker alone: the runner's parent never imports onnxruntime.
    body = "\n".join("    " + line for line in lines)
    text = (
        f"import sys\nif '--worker' in sys.orig_argv:\n    sys.path.insert(0, {str(folder.parent / 'box')!r})\n{body}\n"
    )
    (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


def run_kit(
    folder: Path, *arguments: str | Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``python run.py`` with a console in cp1252."""
    return subprocess.run(
        [sys.executable, "run.py", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "cp1252", **(environment or {})},
        capture_output=True,
        encoding="cp1252",
        timeout=120,
        check=False,
    )
