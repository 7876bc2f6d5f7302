"""A user's day with the real DirectML: whole commands, with a verdict from a DirectML session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_index import fixture

pytestmark = pytest.mark.dml


def _prepare(name: str, out: Path, recipe: str) -> dict[str, Any]:
    one = fixture(name)
    line = [sys.executable, "-m", "dmlprep", "prepare", str(one.path), "-o", str(out), "--recipe", recipe]
    line += [word for pin, size in one.pins.items() for word in ("--pin", f"{pin}={size}")]
    done = subprocess.run([*line, "--device", "dml", "--require-dml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record: dict[str, Any] = json.loads((out / "run.json").read_text())
    return record


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("residual_cnn", "@static-fp32"),
        ("residual_cnn", "@vision-fp16"),
        ("bert_encoder", "@transformer-fp16"),
        ("diffusion_unet", "@static-fp32"),
        ("detector_nms", "@static-fp32"),
    ],
)
def test_a_fixture_is_prepared_and_proved_on_directml(name: str, recipe: str, tmp_path: Path) -> None:
    record = _prepare(name, tmp_path / "out", recipe)
    (verdict,) = [v for v in record["verdicts"] if v["check"] == "parity on dml"]
    assert verdict["outcome"] == "passed"
    assert verdict["device"]["name"].startswith("dml on ")
    assert verdict["tolerance"].startswith("fp16-dml" if "fp16" in recipe else "fp32-dml")
    if "fp16" in recipe:  # what the reference predicted
        off = max(output["max_rel"] for output in verdict["outputs"])
        assert verdict["predicted"] / 2 <= off <= 2 * verdict["predicted"]
