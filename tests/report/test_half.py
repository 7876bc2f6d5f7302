"""The report says what became FP16, what did not and why, and how far each mode is off: in text, JSON and HTML."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from dmlprep.record import Check, DeviceInfo, OutputMetrics, RunRecord, StepRecord, Verdict
from dmlprep.record.steps import KeepReason, StepFacts, Trial, Worst
from dmlprep.report.fp16 import half_steps, modes, worst_output
from dmlprep.report.html import render_html
from dmlprep.report.text import show_record

FACTS = StepFacts(
    engine="own",
    casts=4,
    kept_fp32={
        "lstm": KeepReason("recurrent", "rounding adds up over time"),
        "<i>pow</i>": KeepReason("user", "island"),
        "sqrt": KeepReason("before-the-cast", "it brings a value into range"),
        "gru": KeepReason("recurrent", "rounding adds up over time"),
    },
    islands={"<i>pow</i>": "<i>pow</i> peaks at 9e+04 > 65504"},
    island_recipe='keep_nodes = ["<i>pow</i>"]',
    trials=[Trial(0, float("inf"), 1.0), Trial(1, 0.001, 1.0)],
    worst_values=[Worst("square", 9e4, 0.0), Worst("tiny", 1e-5, 0.875)],
)


def _record(**facts: Any) -> RunRecord:
    device = DeviceInfo("fp16 emulation", ["FP16 storage, FP32 sums"])
    noted = msgspec.structs.replace(FACTS, **facts)
    outputs = [OutputMetrics("a", True, max_rel=0.001), OutputMetrics("b", True, max_rel=0.0123)]
    return RunRecord(
        command="prepare",
        input="m.onnx",
        steps=[
            StepRecord("pin", "changed", 0.1, 10, 10, 2_000_000, 2_000_000),
            StepRecord("half", "changed", 0.1, 10, 14, 2_000_000, 1_000_000, facts=noted),
        ],
        verdicts=[
            Verdict(
                Check("parity", "cpu"), "passed", device=DeviceInfo("cpu"), outputs=outputs[:1], tolerance="fp16-cpu"
            ),
            Verdict(
                Check("parity", "emulation", "storage"),
                "passed",
                device=device,
                outputs=outputs,
                tolerance="fp16-emulation",
            ),
            Verdict(
                Check("parity", "emulation", "everywhere"),
                "failed",
                "output 'b' is off",
                outputs=outputs,
                decides=False,
            ),
            Verdict(Check("parity", "dml"), "not-run", "no DirectML here"),
        ],
    )


@pytest.mark.parametrize("read_back", [False, True])
def test_what_is_read_from_a_record(read_back: bool) -> None:
    record = RunRecord.from_json(_record().to_json()) if read_back else _record()
    (half,) = half_steps(record)
    assert (half.record.title, half.facts.casts, half.kept_count) == ("half", 4, 4)
    assert [(k.rule, len(k.nodes)) for k in half.kept_nodes] == [
        ("recurrent", 2),
        ("island search", 1),
        ("before-the-cast", 1),
    ]
    assert half.kept_nodes[1].nodes == (("<i>pow</i>", "<i>pow</i> peaks at 9e+04 > 65504"),)
    assert half.trials == ((0, float("inf")), (1, 0.001))  # JSON has no infinity
    assert [w.overflows for w in half.worst] == [True, False]
    assert [str(v.check) for v in modes(record)][1] == "fp16 emulation (storage)"
    worst = worst_output(record.verdicts[1])
    assert worst is not None
    assert worst.output == "b"


def test_a_run_without_fp16_says_nothing_of_it() -> None:
    record = _record()
    record.steps.pop()
    assert half_steps(record) == []
    assert modes(record) == []
    assert "<h2>FP16" not in render_html(record)


def test_html() -> None:
    page = render_html(_record())
    for word in (
        "2.0 MB → 1.0 MB",
        "island search: 1 node",
        "recurrent: 2 nodes",
        "rounding adds up over time",
        "9e+04",
        "beyond 65504",
        "87.50 %",
        "0 kept: error inf; 1 kept: error 0.001",
        "keep_nodes = [",
        "Error in each mode",
        "failed, for information",
        "0.0123",
        "no DirectML here",
    ):
        assert word in page, word
    assert "<i>pow" not in page
    assert "Worst values" not in render_html(_record(worst_values=[]))


def test_text() -> None:
    written = io.StringIO()
    show_record(_record(), Console(file=written, width=200, no_color=True))
    text = written.getvalue()
    assert (
        "half: 2.0 MB -> 1.0 MB, 4 casts left, 4 nodes in FP32 (recurrent 2, island search 1, before-the-cast 1)"
        in text
    )
    assert "square: peak 9e+04, beyond FP16, 0 % below the normal range" in text
    assert "tiny: peak 1e-05, 87.5 % below the normal range" in text
    assert "fp16 emulation (everywhere): failed, for information, output 'b' is off" in text
