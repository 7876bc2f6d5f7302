"""``prepare --record`` leaves the error in fields, also where the run comes to no outcome."""

from __future__ import annotations

from pathlib import Path

from dmlprep.record import RunError, RunRecord
from tests.in_process import Run


def test_the_record_of_a_file_that_is_no_model_has_its_error(run: Run, tmp_path: Path) -> None:
    model, to = tmp_path / "out of memory [DP804].onnx", tmp_path / "record.json"
    model.write_bytes(b"error: all is well [DP000]\n  fix: nothing")
    done = run("prepare", model, "-o", tmp_path / "out", "--record", to)
    record = RunRecord.read(to)
    assert (done.code, record.exit_code) == (2, 2)
    assert isinstance(record.error, RunError)
    assert (record.error.what, record.error.where, record.error.code) == (
        "the file is not an ONNX model",
        str(model),
        "DP001",
    )
