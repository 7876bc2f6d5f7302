"""Distil kernel tables into ``dmlprep/targets/data``: one compact file a release.

Run by maintainers when a release comes out: ``python scripts/make_target_data.py FACTS [OUT]``. FACTS is a folder with

* ``version_table.json``: per release of onnxruntime-directml its DirectML.dll, highest opset and IR version that load;
* ``dml_kernels/VERSION.json``: the provider's kernels, read from its source and checked against the shipped binary;
* ``cpu_kernels/VERSION.json``: the CPU provider's kernels of the same release, from docs/OperatorKernels.md.

The format of the output is described in ``dmlprep/targets/kernels.py``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = "https://github.com/microsoft/onnxruntime"
CPU_MEMORY_INPUTS = {"If": [0], "SequenceAt": [1], "SequenceErase": [1], "SequenceInsert": [2]}
"""Inputs that kernels of the DirectML provider read from CPU memory although they need not be constant
(DmlExecutionProvider/src/Operators/OperatorRegistration.cpp and DmlCommon's CPU kernels)."""

CPU_MEMORY_OUTPUTS = {"Shape": [0], "Size": [0]}
"""Outputs that those kernels leave in CPU memory."""

UNDOCUMENTED_CPU = {
    "NonMaxSuppression": [[10, 10, {}], [11, None, {}]],
}
"""CPU kernels without type constraints, which OperatorKernels.md leaves out
(onnxruntime/core/providers/cpu/cpu_execution_provider.cc)."""

IN_BOX = [
    ("winml-10-1809", "Windows ML of Windows 10, version 1809", 7, 3),
    ("winml-10-2004", "Windows ML of Windows 10, version 2004", 9, 4),
    ("winml-11", "Windows ML of Windows 11", 12, 7),
]
"""Name, what it is, highest opset (learn.microsoft.com, Windows ML, "ONNX versions and Windows builds"), and the IR
version that the ONNX release of this opset wrote (onnx, docs/Versioning.md)."""


class Types:
    """Sets of element types, numbered."""

    def __init__(self) -> None:
        self.sets: list[list[str]] = []
        self._index: dict[tuple[str, ...], int] = {}

    def number(self, names: list[str]) -> int:
        key = tuple(sorted(names))
        if key not in self._index:
            self._index[key] = len(self.sets)
            self.sets.append(list(key))
        return self._index[key]


def key_of(row: dict[str, Any]) -> str:
    return row["op"] if row["domain"] == "ai.onnx" else f"{row['domain']}::{row['op']}"


def constraints(row: dict[str, Any], types: Types) -> dict[str, int]:
    return {label: types.number(names) for label, names in sorted(row["types"].items())}


def dml_rows(table: list[dict[str, Any]], types: Types) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    for row in table:
        extra: dict[str, Any] = {}
        if row["constant_cpu_inputs"]:
            extra["const"] = row["constant_cpu_inputs"]
        if row["op"] in CPU_MEMORY_INPUTS:
            extra["cpu_in"] = CPU_MEMORY_INPUTS[row["op"]]
        if row["op"] in CPU_MEMORY_OUTPUTS:
            extra["cpu_out"] = CPU_MEMORY_OUTPUTS[row["op"]]
        if not row["graph_supported"]:
            extra["fuses"] = False
        if row["required_input_count_for_graph"]:
            extra["fused_inputs"] = row["required_input_count_for_graph"]
        if row["query"]:
            extra["query"] = row["query"]
        if row["creation"] != "dml":
            extra["made_by"] = row["creation"]
        entry: list[Any] = [row["since"], constraints(row, types)]
        rows.setdefault(key_of(row), []).append([*entry, extra] if extra else entry)
    return {op: sorted(found, key=lambda r: r[0]) for op, found in sorted(rows.items())}


def cpu_rows(table: list[dict[str, Any]], types: Types) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    for row in table:
        if row["domain"] not in ("ai.onnx", "ai.onnx.ml", "com.microsoft"):
            continue
        rows.setdefault(key_of(row), []).append([row["since"], row["until"], constraints(row, types)])
    for op, found in UNDOCUMENTED_CPU.items():
        rows.setdefault(op, found)
    return {op: sorted(found, key=lambda r: r[0]) for op, found in sorted(rows.items())}


def write(path: Path, head: dict[str, Any], blocks: dict[str, Any]) -> None:
    """JSON with one operator a line, so that two releases can be compared by any diff."""

    def compact(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    parts = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
    for key, block in blocks.items():
        if isinstance(block, dict):
            lines = ",\n".join(f'"{op}":{compact(rows)}' for op, rows in block.items())
            parts.append(f'"{key}": {{\n{lines}\n}}')
        else:
            lines = ",\n".join(compact(row) for row in block)
            parts.append(f'"{key}": [\n{lines}\n]')
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def main(facts: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    versions = {row["ort_directml"]: row for row in json.loads((facts / "version_table.json").read_text())}
    index = {row["release"]: row for row in json.loads((facts / "dml_kernels/INDEX.json").read_text())}
    for kernels in sorted((facts / "dml_kernels").glob("1.*.json")):
        release = kernels.stem
        version = versions[release]
        types = Types()
        dml = dml_rows(json.loads(kernels.read_text()), types)
        cpu = cpu_rows(json.loads((facts / "cpu_kernels" / kernels.name).read_text()), types)
        name = "ort-" + ".".join(release.split(".")[:2])
        head = {
            "format": 1,
            "name": name,
            "title": f"onnxruntime-directml {release}",
            "ort_version": release,
            "directml_version": version["directml"],
            "feature_level": version["directml_feature_level"].split("*")[0],
            "max_opset": version["ort_max_onnx_opset"],
            "max_ir": version["ort_max_ir"],
            "dml_opset": version["practical_max_opset"],
            "sources": [
                f"kernels: {REPOSITORY} at {index[release]['source_ref']}, onnxruntime/core/providers/dml/"
                "DmlExecutionProvider/src/Operators/OperatorRegistration.cpp; rows compared with the shipped binary",
                f"CPU kernels: {REPOSITORY} v{release}, docs/OperatorKernels.md",
                f"max_opset, max_ir: measured by loading one-node models in onnxruntime {release}",
                f"directml_version: DirectML.dll in the wheel onnxruntime-directml {release}",
                "feature_level: learn.microsoft.com, DirectML version history",
                "dml_opset: derived: highest opset at which only Dropout, ScatterElements, ScatterND, GridSample, "
                "ConstantOfShape and If lose their DirectML kernel",
            ],
        }
        write(out / f"{name}.json", head, {"types": types.sets, "dml": dml, "cpu": cpu})
    for name, title, opset, max_ir in IN_BOX:
        head = {
            "format": 1,
            "name": name,
            "title": title,
            "ort_version": "",
            "directml_version": "",
            "feature_level": "",
            "max_opset": opset,
            "max_ir": max_ir,
            "dml_opset": opset,
            "opset_only": True,
            "sources": [
                "max_opset: learn.microsoft.com, Windows ML, ONNX versions and Windows builds",
                "max_ir: onnx docs/Versioning.md, the IR version of the ONNX release that this opset belongs to",
            ],
        }
        write(out / f"{name}.json", head, {})


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else here / "dmlprep" / "targets" / "data")
