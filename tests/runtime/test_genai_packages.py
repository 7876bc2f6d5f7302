"""Releases of onnxruntime-genai-directml that ask for packages that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlprep.runtime.environment import genai_findings


@pytest.mark.parametrize(("version", "codes"), [("0.12.2", []), ("0.13.0", ["DP865"]), ("0.18.0", ["DP865"])])
def test_a_release_without_its_onnxruntime(tmp_path: Path, version: str, codes: list[str]) -> None:
    about = tmp_path / f"onnxruntime_genai_directml-{version}.dist-info"
    about.mkdir()
    text = f"Metadata-Version: 2.1\nName: onnxruntime-genai-directml\nVersion: {version}\n"
    (about / "METADATA").write_text(text, encoding="utf-8")
    found = genai_findings([str(tmp_path)])
    assert [one.code for one in found] == codes
    assert all("onnxruntime-genai-winml" in one.remedy for one in found)
