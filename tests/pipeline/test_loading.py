"""With the proof off, a result is written only where ONNX Runtime loads it, or could not load the original either."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import dmlprep
from dmlprep.passes.opset import handling
from dmlprep.record import RunRecord
from fixtures import hostile

UNPROVED = {"parity.cpu": False, "step.opset.version": 17}


def grid(path: Path) -> Path:
    """AffineGrid whose size is an input: ONNX's function body gives Range tensors of one element."""
    graph = helper.make_graph(
        [helper.make_node("AffineGrid", ["theta", "size"], ["grid"])],
        "g",
        [
            helper.make_tensor_value_info("theta", TensorProto.FLOAT, ["n", 2, 3]),
            helper.make_tensor_value_info("size", TensorProto.INT64, [4]),
        ],
        [helper.make_tensor_value_info("grid", TensorProto.FLOAT, ["n", "h", "w", 2])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def unproved(source: Path, **more: object) -> RunRecord:
    return dmlprep.prepare(
        source, out=source.parent / "out", recipe="@check-only", settings={**UNPROVED, **more}, device="cpu", force=True
    )


def test_what_the_checker_alone_accepts_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(handling.STEPS, ("AffineGrid", 20))
    assert handling.handling_of("AffineGrid", 20) == "body"
    record = unproved(grid(tmp_path / "m.onnx"))
    assert record.exit_code == 1
    assert [(str(v.check), v.outcome) for v in record.verdicts] == [("load on cpu", "failed")]
    assert "Range" in str(record.error)
    assert "DP713" in str(record.error)
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_what_loads_is_written_and_the_verdict_says_so(tmp_path: Path) -> None:
    record = unproved(grid(tmp_path / "m.onnx"))
    assert record.exit_code == 0, record.error
    assert [(str(v.check), v.outcome, v.outputs) for v in record.verdicts] == [("load on cpu", "passed", [])]
    assert "ONNX Runtime" in str(record.verdicts[0].device)
    ort.InferenceSession(record.output, providers=["CPUExecutionProvider"])


@pytest.mark.skipif(
    tuple(map(int, ort.__version__.split(".")[:2])) < (1, 27), reason="ONNX Runtime has the option since 1.27"
)
def test_loading_computes_no_large_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime would write a gigabyte down, and its running sum."""
    path = tmp_path / "m.onnx"
    onnx.save(hostile.running_sum(), path)
    monkeypatch.setenv("DMLPREP_MEMORY_LIMIT", "800M")
    record = unproved(path)
    assert [(str(v.check), v.outcome) for v in record.verdicts] == [("load on cpu", "passed")], record.verdicts


def test_a_proof_that_ran_the_file_needs_no_other(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg (x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    record = dmlprep.prepare(tmp_path / "m.onnx", out=tmp_path / "out", device="cpu")
    assert [str(v.check) for v in record.verdicts] == ["parity on cpu"]


def test_an_operator_of_the_users_own_is_not_run_and_written(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> g (float[2] x) => (float[2] y) { y = mine.Own (x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    record = unproved(tmp_path / "m.onnx")
    assert record.exit_code == 0, record.error
    (verdict,) = record.verdicts
    assert (str(verdict.check), verdict.outcome, verdict.decides) == ("load on cpu", "not-run", False)
    assert "loads neither the result nor the original" in verdict.reason
    assert "mine:Own" in verdict.reason
    proved = dmlprep.prepare(tmp_path / "m.onnx", out=tmp_path / "p", recipe="@check-only", device="cpu")
    assert proved.exit_code == 3
