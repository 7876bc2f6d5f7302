"""The loader for Python on the real DirectML: ``python scripts/windows.py test`` with this file."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlprep
from dmlprep.portable.public import AdapterMissing, BadInput, Model, PackageDamaged
from dmlprep.portable.sample import example
from tests.fixtures_index import fixture
from tests.system import WINDOWS

pytestmark = [
    pytest.mark.dml,
    pytest.mark.skipif(not WINDOWS, reason="onnxruntime-directml is for Windows: python scripts/windows.py test"),
]

DML, CPU = "DmlExecutionProvider", "CPUExecutionProvider"
SIZES = [{"height": 16, "width": 16}, {"height": 24, "width": 16}, {"height": 24, "width": 24}]
GRID = "height=16 width=16\nheight=20 width=16\nheight=9 width=24\nheight=25 width=1\nheight=4\n"


@pytest.fixture(scope="module")
def model(made: Path) -> Model:
    return Model(made)


def _feeds(model: Model, factor: float = 1.0) -> dict[str, Any]:
    return {one["name"]: example(one) * np.float32(factor) for one in model.inputs}


def test_the_device_and_its_evidence(model: Model) -> None:
    assert (model.asked, model.device, model.notice) == ("dml", "dml", "")
    assert re.fullmatch(rf"ONNX Runtime assigned (\d+) of \1 nodes to {DML}", model.evidence)


def test_an_adapter_that_is_missing(made: Path) -> None:
    with pytest.raises(AdapterMissing, match="887A0002"):
        Model(made, adapter=99)


def test_a_fall_back_is_said_once(made: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = Model(made, adapter=99, device="dml-or-cpu")
    model.run(_feeds(model))
    assert (model.asked, model.device) == ("dml-or-cpu", "cpu")
    assert model.evidence == f"the session lists only {CPU}"
    assert [(one.name, one.getMessage()) for one in caplog.records] == [("dmlprep_model", model.notice)]
    assert "887A0002" in model.notice


def test_a_wrong_file(app: Path) -> None:
    shutil.copyfile(fixture("depthwise_cnn").path, app / "model.onnx")
    with pytest.raises(PackageDamaged, match=r"^model\.onnx has \d+ bytes, but model\.json lists"):
        Model(app)
    (app / "model.onnx").unlink()
    with pytest.raises(PackageDamaged, match=r"^model\.onnx is missing in"):
        Model(app)


def test_a_byte_that_was_changed(app: Path) -> None:
    raw = bytearray((app / "model.onnx").read_bytes())
    raw[len(raw) // 2] ^= 1
    (app / "model.onnx").write_bytes(raw)
    with pytest.raises(PackageDamaged, match=r"^model\.onnx was changed"):
        Model(app)


def test_a_wrong_shape(model: Model) -> None:
    with pytest.raises(BadInput, match=r"is \[1, 32, 32, 3\], but the model needs \[1, 3, 32, 32\]"):
        model.run({"pixel_values": np.zeros((1, 32, 32, 3), np.float32)})
    model.run(_feeds(model))


def test_a_wrong_type(model: Model) -> None:
    with pytest.raises(BadInput, match="is float64, but the model needs float32"):
        model.run({"pixel_values": np.zeros((1, 3, 32, 32))})
    model.run(_feeds(model))


def test_threads_and_models_take_turns(made: Path, model: Model) -> None:
    models = [model, Model(made)]
    expected = [model.run(_feeds(model, number))["logits"] for number in range(4)]

    def work(number: int) -> None:
        for turn in range(4):
            one = models[(number + turn) % 2]
            np.testing.assert_array_equal(one.run(_feeds(one, number))["logits"], expected[number])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result()


def test_buckets(tmp_path: Path) -> None:
    run, app, grid = tmp_path / "run", tmp_path / "app", tmp_path / "grid.txt"
    path = fixture("depthwise_cnn").path
    assert dmlprep.prepare_buckets(path, out=run, buckets=SIZES, pins={"batch": 1}, device="cpu").exit_code == 0
    dmlprep.package_model(run, out=app, language="python", unproven=True)
    grid.write_text(GRID)
    program = Path(__file__).parent / "python" / "buckets.py"
    line = [sys.executable, str(program), str(app), str(grid), "dml"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[:3] == [
        "height16-width16",
        "height24-width16 height=4",
        "height24-width24 height=15",
    ], done.stderr
    assert done.stdout.splitlines()[-1] == "good", done.stderr
