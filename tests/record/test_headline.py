"""The first line of a report is as good as the worst news, and no better."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from dmlprep.record import Check, OutputMetrics, RunError, RunRecord, Verdict, finding
from dmlprep.record.nodes import NodeTables
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.run_record import RunFacts, headline
from dmlprep.record.speed import SOFTWARE, Bench, Ratio, Timed, Times
from tests.record.test_nodes import TABLE

GOOD = PlacementFacts(nodes=4, dml_nodes=4, crossings=0)
AWAY = PlacementFacts(nodes=4, dml_nodes=2, crossings=3, crossing_bytes=2500)


def _record(placed: PlacementFacts = GOOD, dml: Literal["passed", "not-run", ""] = "passed") -> RunRecord:
    record = RunRecord(command="prepare", input="m.onnx", output="out/model.onnx")
    record.facts = RunFacts(placement_after=placed)
    record.verdicts = [Verdict(Check("parity", "cpu"), "passed", outputs=[OutputMetrics("y", True)])]
    if dml:
        reason = "" if dml == "passed" else "no DirectML here"
        record.verdicts.append(Verdict(Check("parity", "dml"), dml, reason))
    return record


def test_good_is_only_what_is_proved_on_directml_with_nothing_left_behind() -> None:
    told = headline(_record())
    assert (told.level, told.word) == ("good", "good")
    assert told.text == "ready: 4 of 4 nodes on DirectML, worst error 0 %"


def test_nodes_on_the_cpu_are_told_first_and_are_never_green() -> None:
    record = _record(AWAY)
    record.facts.nodes = msgspec.convert({"before": TABLE}, NodeTables)
    told = headline(record)
    assert told.level == "warn"
    assert told.text == (
        "ready: 2 of 4 nodes on DirectML, 2 on the CPU (Gelu), 3 copies between CPU and GPU in each run (2.5 kB), "
        "worst error 0 %"
    )


def test_shape_arithmetic_on_the_cpu_is_good() -> None:
    placed = PlacementFacts(nodes=4, dml_nodes=2, crossings=0)
    assert headline(_record(placed)).level == "good"
    assert headline(_record(msgspec.structs.replace(placed, compute_nodes_on_cpu=1))).level == "warn"
    assert headline(_record(msgspec.structs.replace(placed, crossings=1))).level == "warn"


def test_three_operators_on_the_cpu_are_all_named() -> None:
    record = _record(AWAY)
    table = {**TABLE, "operators": ["A", "B", "C"], "operator": "0 1 2", "providers": "ccc", "roles": "ccc"}
    record.facts.nodes = msgspec.convert({"before": table}, NodeTables)
    assert "2 on the CPU (A, B, C)," in headline(record).text


@pytest.mark.parametrize(("dml", "words"), [("not-run", "parity on dml: not run"), ("", "not tried on DirectML")])
def test_what_did_not_run_is_not_good(dml: Literal["not-run", ""], words: str) -> None:
    told = headline(_record(dml=dml))
    assert told.level == "warn"
    assert words in told.text


def test_warnings_and_errors() -> None:
    record = _record()
    record.findings = [finding("DP201", "free", severity="warning")]
    assert headline(record).level == "warn"
    record.findings.append(finding("DP701", "differs", severity="error"))
    assert headline(record).level == "bad"
    record = _record()
    record.exit_code, record.error = 1, RunError("parity on cpu failed")
    assert headline(record).level == "bad"
    assert "parity on cpu failed" in headline(record).text


def test_other_commands() -> None:
    assert headline(RunRecord(command="bench", input="m.onnx")).text == "bench is done"
    idle = RunRecord(
        command="bench", input="m.onnx", facts=RunFacts(bench=Bench("", (Timed("m", "m.onnx", not_run="no GPU"),)))
    )
    assert headline(idle).level == "warn"


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (Ratio("m.onnx", 0.36, 0.33, 0.38, 9), "2.8 times as fast as m.onnx (2.6 to 3.0)"),
        (Ratio("m.onnx", 0.99, 0.9, 1.1, 9), "not clearly faster or slower than m.onnx (0.91 to 1.11 times as fast)"),
        (Ratio("m.onnx", 1.5, 1.4, 1.6, 9), "slower: 1.50 times the time of m.onnx (1.40 to 1.60)"),
        (Ratio("m.onnx", 0.5), "not compared with m.onnx: too few rounds"),
    ],
)
def test_a_ratio_in_words(ratio: Ratio, words: str) -> None:
    calm, busy = (Times(9, 0.1, 0.09, p90, 10.0) for p90 in (0.11, 0.9))
    bench = Bench("gpu", (Timed("m.onnx", "m.onnx", times=calm), Timed("p.onnx", "p.onnx", times=calm, ratio=ratio)))
    assert bench.sentences() == [f"p.onnx is {words}"]
    assert Bench("gpu", (Timed("m.onnx", "m.onnx", times=busy),)).sentences() == [
        "m.onnx takes 100 ms for a run",
        "the machine was busy: p90 is 10 times p10",
    ]


@pytest.mark.parametrize(("p90", "note"), [(0.9, ""), (0.11, SOFTWARE)])
def test_noise_and_software_devices_are_not_called_good(p90: float, note: str) -> None:
    bench = Bench("gpu", (Timed("m.onnx", "m.onnx", times=Times(9, 0.1, 0.09, p90, 10.0)),), note=note)
    shown = headline(RunRecord(command="bench", input="m.onnx", facts=RunFacts(bench=bench)))
    assert shown.level == "warn"
    assert shown.text.startswith("m.onnx takes 100 ms for a run, ")


def test_the_written_record_has_its_headline() -> None:
    record = _record(AWAY)
    written = record.to_json()
    assert msgspec.json.decode(written)["headline"] == {"level": "warn", "text": headline(record).text}
    assert RunRecord.from_json(written) == record


def test_a_notebook_shows_it_escaped() -> None:
    record = _record(AWAY)
    record.findings = [finding("DP201", "<b>free</b>", severity="warning")]
    record.input = "<script>alert(1)</script>\u202e.onnx"
    record.facts.placement_before = GOOD
    shown = record._repr_html_()
    assert "<script>" not in shown
    assert "warning DP201 &lt;b&gt;free&lt;/b&gt;" in shown
    assert "\\u202e" in shown
    assert "2 of 4" in shown
    assert "parity on dml" in shown
    assert len(shown) < 4000
