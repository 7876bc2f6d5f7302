"""The HTML report holds what the record holds, and nothing of a model is executed in it."""

from __future__ import annotations

import html
import tomllib
from pathlib import Path

import msgspec
import pytest

from dmlprep.core.errors import OutputError
from dmlprep.record import Check, DeviceInfo, OutputMetrics, RunError, RunRecord, StepRecord, Verdict, finding
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.run_record import RunFacts
from dmlprep.report.html import render_html, write_html
from dmlprep.report.sarif import to_object
from dmlprep.report.text import render_text


def _record() -> RunRecord:
    return RunRecord(
        command="prepare",
        input="<script>alert(1)</script>.onnx",
        exit_code=1,
        error=RunError("parity failed"),
        opset_before={"": 18},
        opset_after={"": 17},
        steps=[StepRecord("pin", "changed", 0.5, 10, 8, 100, 100, options={"sizes": {"batch": 1}})],
        verdicts=[
            Verdict(
                Check("parity", "cpu"),
                "failed",
                "outputs differ",
                DeviceInfo("cpu"),
                "fp32",
                2,
                0.1,
                [OutputMetrics("logits", False, max_rel=0.5)],
            ),
            Verdict(Check("parity", "dml"), "not-run", "no DirectML here"),
        ],
        findings=[finding("DP201", "stays dynamic", node="<b>nms</b>")],
    )


def test_everything_is_in_it_and_escaped() -> None:
    page = render_html(_record())
    for word in ("parity failed", "logits", "not-run", "no DirectML here", "DP201", "pin", "10 → 8"):
        assert word in page
    assert "<script>alert" not in page
    assert page.count("<script") == 2  # our own: the nodes as JSON, and what follows the pointer
    assert "<b>nms" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_failed_run_says_that_nothing_was_written_and_the_worst_first() -> None:
    record = _record()
    record.output_sha256 = "f" * 64  # of the staged file that was thrown away
    record.findings.append(finding("DP701", "the outputs differ", severity="error"))
    page = render_html(record)
    assert "nothing was written" in page
    assert "f" * 64 not in page
    assert page.index("the outputs differ") < page.index("stays dynamic")


def test_made_inputs_are_told_in_every_form() -> None:
    record = _record()
    record.verdicts = [record.verdicts[0].on("seeded"), record.verdicts[1].on("seeded", remind=False)]
    page = render_html(record)
    assert page.count("</span> with synthetic inputs") == 1  # the other one did not run
    assert "pass real inputs with --feeds" in page
    assert "failed with synthetic inputs, outputs differ" in render_text(record)
    (result,) = [one for one in to_object([record])["runs"][0]["results"] if one["ruleId"] == "DP710"]
    assert result["level"] == "note"
    assert "dmlprep feeds makes them" in result["message"]["text"]
    assert RunRecord.from_json(record.to_json()).verdicts[0].inputs == "seeded"
    assert "with synthetic inputs" not in render_text(_record())


def test_options_stand_as_a_recipe_writes_them() -> None:
    record = _record()
    options = {"sizes": {"batch": 1, "a b": 2}, "keep_io": True, "keep_nodes": ["ü"], "islands": "auto"}
    record.steps = [StepRecord("fp16", "changed", 0.5, 8, 8, 12, 1_234_567, options=options)]
    page = html.unescape(render_html(record))
    for key, value in options.items():
        text = page.split(f"<code>{key} = ")[1].split("</code>")[0]
        assert tomllib.loads(f"v = {text}") == {"v": value}
    assert "12 B → 1.2 MB" in page


def test_placement_is_told_before_and_after() -> None:
    record = _record()
    placed = PlacementFacts(nodes=9, dml_nodes=7, flop_share=0.5, partitions=2, crossings=3)
    before = msgspec.structs.replace(placed, flop_share=None)
    record.facts = RunFacts(placement_before=before, placement_after=placed)
    page = render_html(record)
    assert page.count("7 of 9") == 3  # before, after, and on top
    assert "50.0 %" in page
    assert "unknown" in page


def test_a_model_of_other_domains_alone() -> None:
    record = _record()
    record.opset_before, record.opset_after = {"com.microsoft": 1}, {}
    assert "? → ?" in render_html(record)


def test_json_round_trip() -> None:
    record = _record()
    assert RunRecord.from_json(record.to_json()) == record


def test_a_record_of_a_newer_dmlprep_is_not_read_as_if_it_were_ours() -> None:
    record = _record()
    record.format = 99
    with pytest.raises(msgspec.ValidationError, match="newer dmlprep"):
        RunRecord.from_json(record.to_json())


def test_an_existing_report_is_kept(tmp_path: Path) -> None:
    write_html(_record(), tmp_path / "r.html")
    with pytest.raises(OutputError, match="exists"):
        write_html(_record(), tmp_path / "r.html")
    write_html(_record(), tmp_path / "r.html", force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_a_verdict_that_did_not_pass_says_why() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Verdict(Check("parity"), "not-run")
