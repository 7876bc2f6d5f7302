"""The onnxruntime-directml that an installed onnxruntime-genai-directml requires."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlprep.runtime.environment import genai_findings


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (about / "METADATA").write_text("\n".join([*lines, ""]), encoding="utf-8")


@pytest.mark.parametrize(
    ("version", "requires", "runtime", "remedy"),
    [
        ("0.12.2", "onnxruntime-directml>=1.23.0", "1.24.4", ""),
        ("0.13.1", "onnxruntime-directml>=1.24.4", "1.24.4", ""),
        ("0.13.1", "onnxruntime-directml>=1.24.4", "1.23.0", '"onnxruntime-directml>=1.24.4"'),
        ("0.13.1", "onnxruntime-directml>=1.24.4", "", '"onnxruntime-directml>=1.24.4"'),
        ("0.14.1", "onnxruntime-directml>=1.26.0", "1.24.4", "onnxruntime-genai-winml"),
        ("0.14.1", "onnxruntime-directml>=1.26.0", "1.26.0", ""),
        ("9.0.0", "numpy>=1.21.6", "", ""),
    ],
)
def test_the_metadata_decide(tmp_path: Path, version: str, requires: str, runtime: str, remedy: str) -> None:
    install(tmp_path, "onnxruntime-genai-directml", version, "numpy>=1.21.6", requires)
    if runtime:
        install(tmp_path, "onnxruntime-directml", runtime)
    found = genai_findings([str(tmp_path)])
    assert [one.code for one in found] == (["DP865"] if remedy else [])
    assert all(remedy in one.remedy for one in found)


def test_without_genai(tmp_path: Path) -> None:
    assert genai_findings([str(tmp_path)]) == []
