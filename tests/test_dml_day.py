"""A user's day with the real DirectML: whole commands, with a verdict from a DirectML session."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.fixtures_index import fixture

pytestmark = pytest.mark.dml


def _dmlprep(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "dmlprep", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def _prepare(path: Path, pins: dict[str, int], out: Path, recipe: str) -> dict[str, Any]:
    words = [word for pin, size in pins.items() for word in ("--pin", f"{pin}={size}")]
    done = _dmlprep(
        "prepare", path, "-o", out, "--recipe", recipe, *words, "--device", "dml", "--require-dml", "--fresh"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record: dict[str, Any] = json.loads((out / "run.json").read_text(encoding="utf-8"))
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
    one = fixture(name)
    record = _prepare(one.path, one.pins, tmp_path / "out", recipe)
    (verdict,) = [v for v in record["verdicts"] if v["check"] == {"measure": "parity", "provider": "dml"}]
    assert verdict["outcome"] == "passed"
    assert verdict["device"]["name"].startswith("dml on ")
    assert verdict["tolerance"].startswith("fp16-dml" if "fp16" in recipe else "fp32-dml")
    if "fp16" in recipe:  # what the reference predicted
        off = max(output["max_rel"] for output in verdict["outputs"])
        assert verdict["predicted"] / 2 <= off <= 2 * verdict["predicted"]


def test_names_that_no_code_page_holds_together(tmp_path: Path) -> None:
    """Model, data file, folders, tensors and a dimension in Cyrillic and Japanese; the output goes into pipes."""
    weights = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["вход", "веса"], ["произведение"]),
            helper.make_node("Relu", ["произведение"], ["出力"]),
        ],
        "граф",
        [helper.make_tensor_value_info("вход", TensorProto.FLOAT, ["пакет", 8])],
        [helper.make_tensor_value_info("出力", TensorProto.FLOAT, ["пакет", 8])],
        [numpy_helper.from_array(weights, "веса")],
    )
    folder = tmp_path / "папка 日本"
    folder.mkdir()
    path = folder / "модель モデル.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path), save_as_external_data=True, location="данные データ.bin", size_threshold=0)
    record = _prepare(path, {"пакет": 2}, tmp_path / "результат 結果", "@vision-fp16")
    (verdict,) = [v for v in record["verdicts"] if v["check"] == {"measure": "parity", "provider": "dml"}]
    assert verdict["outcome"] == "passed"
    assert [output["output"] for output in verdict["outputs"]] == ["出力"]


def test_an_adapter_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    one = fixture("residual_cnn")
    out = tmp_path / "out"
    options = ["--pin", "batch=1", "--device", "dml", "--require-dml", "--device-id", "7"]
    done = _dmlprep("prepare", one.path, "-o", out, *options)
    assert done.returncode == 3, done.stdout + done.stderr
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "887A0002" in line]
    assert "there is no adapter 7" in line
    assert not out.exists()


@pytest.mark.skipif(sys.platform != "win32", reason="a kit runs on the DirectML of Windows")
def test_candidates_of_tune_run_from_a_kit_and_the_choice_is_prepared(tmp_path: Path) -> None:
    one = fixture("residual_cnn")
    kit, tuned = tmp_path / "kit.zip", tmp_path / "tuned.toml"
    done = _dmlprep("tune", one.path, "--pin", "batch=2", "--device", "cpu", "--top", "2", "--kit", kit)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(kit) as packed:
        packed.extractall(tmp_path / "there")
    line = [sys.executable, "run.py"]
    ran = subprocess.run(line, cwd=tmp_path / "there", capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    done = _dmlprep("tune", "--from-kit", tmp_path / "there" / "result.zip", "--kit", kit, "-o", tuned)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dml on windows" in tuned.read_text(encoding="utf-8")
    assert "a software device: not the times of a GPU" in done.stdout
    _prepare(one.path, {}, tmp_path / "out", str(tuned))
