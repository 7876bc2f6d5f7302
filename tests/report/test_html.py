"""The HTML report holds what the record holds, and nothing of a model is executed in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlprep.errors import OutputError
from dmlprep.record import DeviceInfo, OutputMetrics, RunRecord, StepRecord, Verdict, finding
from dmlprep.report.html import render_html, write_html


def _record() -> RunRecord:
    return RunRecord(
        command="prepare",
        input="<script>alert(1)</script>.onnx",
        exit_code=1,
        error="parity failed",
        opset_before={"": 18},
        opset_after={"": 17},
        steps=[StepRecord("pin", "changed", 0.5, 10, 8, 100, 100, options={"sizes": {"batch": 1}})],
        verdicts=[
            Verdict(
                "parity on cpu",
                "failed",
                "outputs differ",
                DeviceInfo("cpu"),
                "fp32",
                2,
                0.1,
                [OutputMetrics("logits", False, max_rel=0.5)],
            ),
            Verdict("parity on dml", "not-run", "no DirectML here"),
        ],
        findings=[finding("DP201", "stays dynamic", node="<b>nms</b>")],
    )


def test_everything_is_in_it_and_escaped() -> None:
    page = render_html(_record())
    for word in ("parity failed", "logits", "not-run", "no DirectML here", "DP201", "pin", "10 → 8"):
        assert word in page
    assert "<script>" not in page
    assert "<b>nms" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_json_round_trip() -> None:
    record = _record()
    assert RunRecord.from_json(record.to_json()) == record


def test_an_existing_report_is_kept(tmp_path: Path) -> None:
    write_html(_record(), tmp_path / "r.html")
    with pytest.raises(OutputError, match="exists"):
        write_html(_record(), tmp_path / "r.html")
    write_html(_record(), tmp_path / "r.html", force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_a_verdict_that_did_not_pass_says_why() -> None:
    with pytest.raises(ValueError, match="says why"):
        Verdict("parity", "not-run")
