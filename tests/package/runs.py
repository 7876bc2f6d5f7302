"""Folders of runs that DirectML passed, by their record."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import onnx
from onnx import parser

from dmlprep.graph.model import Model
from dmlprep.passes.framing import resolve, write_frame
from dmlprep.record import Check, RunRecord, Verdict

__all__ = ["DETECTOR", "PICTURE", "framed_run", "run_of", "with_zeros"]

DETECTOR = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 3, 16, 16] images) => (float[1, 7, 256] raw)
<int64[3] s = {1, 3, 256}, int64[1] n = {2}, float[1, 1, 256] zero>
{ flat = Reshape(images, s)  twice = Concat<axis = 1>(flat, flat, zero)  raw = Identity(twice) }"""
PICTURE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 3, 16, 16] images, int64[1, 4] ids, bool[2] flags) => (float[1, 3, 16, 16] y, float[1, 4, 8] e, bool[2] f)
<float[10, 8] table> { y = Identity(images)  e = Gather(table, ids)  f = Not(flags) }"""


def run_of(folder: Path) -> Path:
    """Write the record of the ``model.onnx`` in a folder."""
    passed = [Verdict(Check("parity", "dml"), "passed")]
    record = RunRecord(command="prepare", input="m.onnx", target="ort-1.24", verdicts=passed)
    record.output_sha256 = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    (folder / "run.json").write_bytes(record.to_json())
    return folder


def framed_run(text: str, folder: Path, *, pictures: Any, results: Any = None, detect: Any = None) -> Path:
    """The run's folder of a framed model."""
    folder.mkdir()
    onnx.save(parser.parse_model(with_zeros(text)), folder / "model.onnx")
    model = Model.open(folder / "model.onnx")
    write_frame(model, resolve(model.ir, pictures, results, detect))
    model.save(folder / "framed.onnx")
    (folder / "framed.onnx").replace(folder / "model.onnx")
    return run_of(folder)


def with_zeros(text: str) -> str:
    """The text of a model with its ``zero`` and ``table`` filled."""
    return text.replace("zero>", "zero = {" + ", ".join(["0"] * 256) + "}>").replace(
        "table>", "table = {" + ", ".join(["0"] * 80) + "}>"
    )
