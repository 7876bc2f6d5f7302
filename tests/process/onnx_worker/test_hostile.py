"""Models that crash onnx, keep it busy or fill the memory: one clear error, soon, and the next model works."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from dmlprep.core.errors import ToolFailed
from dmlprep.graph.model import Model
from dmlprep.graph.model.checking import check
from dmlprep.process.onnx_worker.door import Limits, limited
from fixtures.crashing import MODELS, counting, node_amid
from tests.fixtures_index import fixture
from tests.in_process import Run
from tests.system import not_on_windows

crashes = not_on_windows("under Wine a process that really crashes stays")

NAMES = [pytest.param(name, marks=crashes) if name == "label_encoder" else name for name in MODELS]
CODES = {"label_encoder": "DP012", "functions": "DP014"}  # the last is refused when it is opened: onnx never sees it
TIGHT = ("--limit", "onnx_seconds=0.3", "--limit", f"onnx_bytes={192 << 20}")


def written(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(MODELS[name](), path)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_check_says_so_and_goes_on(name: str, run: Run, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    done = run(*TIGHT, "check", path, fixture("residual_cnn").path)
    assert done.code == 1
    assert f"[{CODES.get(name, 'DP013')}]" in done.err
    assert f"{path}: " in done.err
    assert "fix: " in done.err
    assert "on DirectML" in done.out  # of the second model


@pytest.mark.parametrize("name", NAMES)
def test_prepare_refuses_and_writes_nothing(name: str, run: Run, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    record = tmp_path / "record.json"
    done = run(*TIGHT, "prepare", path, "-o", tmp_path / "out", "--record", record)
    assert done.code == 1
    found = json.loads(record.read_text(encoding="utf-8"))
    assert [f["code"] for f in found["findings"] if f["severity"] == "error"] == [CODES.get(name, "DP013")]
    assert not (tmp_path / "out").exists()


@crashes
def test_the_node_that_crashes_onnx_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "amid.onnx"
    onnx.save(node_amid("label_encoder"), path)
    done = run("check", path)
    assert done.code == 1
    assert "node encoder: onnx's shape inference crashes on this model (SIGSEGV)" in done.err


def test_a_node_that_is_looked_at_alone_is_named(tmp_path: Path) -> None:
    from dmlprep.graph.analysis.shapes import Inference

    model = Model.open(written("einsum_dot", tmp_path))
    with limited(Limits(seconds=0.3)), pytest.raises(ToolFailed) as caught:
        Inference.of(model.ir)
    assert caught.value.where == "node einsum"


def test_a_model_without_a_shape_for_its_output_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    model = MODELS["einsum_dots"]()
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path = tmp_path / "open.onnx"
    onnx.save(model, path)
    with limited(Limits(seconds=0.3)), pytest.raises(ToolFailed, match="did not finish"):
        Model.open(path)


def test_a_limit_can_be_raised(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.onnx"
    onnx.save(counting(2**20), path)
    refused = run("--limit", f"onnx_bytes={16 << 20}", "check", path)
    assert (refused.code, "needs more than 16 MiB" in refused.err) == (1, True)
    assert run("--limit", f"onnx_bytes={1 << 30}", "check", path).code == 0
    assert run("--limit", "onnx_seconds=0", "check", path).code == 2


def test_the_checker_alone_looks_into_no_shapes() -> None:
    from onnx_ir import from_proto

    assert check(from_proto(MODELS["einsum_dot"]()), full=False) == ""
