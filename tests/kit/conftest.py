"""A prepared model with its record, and a kit of it, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlprep import api
from tests.kept_workers import kept_workers, own_workers
from tests.kit.box import CPU, extract, run_kit

__all__ = ["box", "kept_workers", "made", "own_workers"]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``original.onnx``, ``out/model.onnx`` with ``run.json``, ``kit.zip``, and ``result.zip`` of the CPU provider."""
    folder = tmp_path_factory.mktemp("kit made")
    fixture = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "residual_cnn.onnx"
    (folder / "original.onnx").write_bytes(fixture.read_bytes())
    record = api.prepare(folder / "original.onnx", out=folder / "out", pins={"batch": 2}, device="cpu")
    assert record.exit_code == 0
    api.pack_kit(folder / "out" / "model.onnx", out=folder / "kit.zip")
    box = extract(folder / "kit.zip", folder / "box")
    done = run_kit(box, *CPU, "-o", folder / "result.zip")
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture
def box(made: Path, tmp_path: Path) -> Path:
    """A fresh extraction of the kit."""
    return extract(made / "kit.zip", tmp_path / "box")
