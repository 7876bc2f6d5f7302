"""The figures say what the record says: the ribbon, the charts, the nodes for the script, the pages of codes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dmlprep.portable.printable import printable
from dmlprep.record import Check, OutputMetrics, RunError, RunRecord, StepRecord, Verdict, finding
from dmlprep.record.bisected import Bisected
from dmlprep.record.nodes import CrossingTable, NodeTable, NodeTables, Reason
from dmlprep.record.run_record import RunFacts
from dmlprep.record.steps import Block, Profile, StepFacts
from dmlprep.report.charts import blocks_along, error_rows, errors_along, profile_along, step_bars
from dmlprep.report.fp16 import half_steps
from dmlprep.report.html import headline_node, page_html, payload, render_html
from dmlprep.report.ribbon import WIDTH, ribbon
from dmlprep.report.text import render_text
from tests.record.test_nodes import TABLE


def table(providers: str, floats: str = "", **changes: Any) -> NodeTable:
    count = len(providers)
    return NodeTable(
        **{
            "total": count,
            "names": [f"/block.{i // 10}/<b>{i}" for i in range(count)],
            "providers": providers,
            "floats": floats or "h" * count,
            "roles": "c" * count,
            "operators": ["Conv"][:count],
            "operator": "0 " * count,
            "reasons": [Reason("DP500", "")][:count],
            "reason": "0 " * count,
            "not_fused": "-1 " * count,
            "types": ["float16[1]"][:count],
            "type": "0 " * count,
            "partition": "-1 " * count,
            "inputs": " ".join("-" if i == 0 else str(i - 1) for i in range(count)),
        }
        | changes
    )


def test_each_node_of_a_small_model_has_a_cell() -> None:
    found = ribbon(table("ddcd", "hshn"), "after", half=True)
    assert [(cell.kind, cell.x, cell.width) for cell in found.cells] == [
        ("dml", 0, 250),
        ("single", 250, 250),
        ("cpu", 500, 250),
        ("dml", 750, 250),
    ]
    assert (found.on_cpu, found.single, found.apart) == (1, 1, True)
    assert ribbon(table("ddcd", "hshn"), "before", half=False).single == 0  # FP16 was not asked for


def test_the_ribbon_of_an_fp32_model_before_its_step_to_fp16_shows_fp32() -> None:
    step = StepRecord("fp16", "changed", 1.0, 4, 4, 8, 4, facts=StepFacts(casts=1))
    tables = NodeTables(table("dddd", "ssss"), table("dddd"))
    page = render_html(RunRecord(command="prepare", input="m", steps=[step], facts=RunFacts(nodes=tables)))
    before, after = page.split('class="ribbon"')[1:]
    assert [before.count('"cell single"'), after.count('"cell single"')] == [4, 0]
    assert after.count('"cell dml"') == 4


def test_the_node_of_the_headline() -> None:
    tables = NodeTables(table("dcdd", names=list("abcd")), table("ddcd", names=list("abxd")))
    record = RunRecord(command="prepare", input="m", facts=RunFacts(nodes=tables))
    record.findings = [finding("DP201", "free", node="a")]
    assert headline_node(record) == (1, 2)  # the node on the CPU, rather than the warning
    record.findings.append(finding("DP507", "no kernel", node="c"))
    assert headline_node(record) == (0, 2)  # the error; only the model before the steps has its node
    assert '"start":[0,2]' in render_html(record)
    shape = table("dc", names=list("ab"), roles="cs")
    record = RunRecord(command="check", input="m", facts=RunFacts(nodes=NodeTables(shape)))
    assert headline_node(record) is None  # shape arithmetic belongs on the CPU
    record.findings = [finding("DP201", "free", node="b")]
    assert headline_node(record) == (0, 1)
    assert headline_node(RunRecord(command="check", input="m")) is None


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 9999])
def test_no_node_on_the_cpu_is_lost_between_the_columns(count: int) -> None:
    for place in {0, count // 2, count - 1} if count else set():
        found = ribbon(table("d" * place + "c" + "d" * (count - place - 1)), "x", half=False)
        (cell,) = [cell for cell in found.cells if cell.kind == "cpu"]
        unit = WIDTH / count
        assert cell.x <= (place + 1) * unit + 1e-9
        assert cell.x + cell.width >= place * unit - 1e-9
        assert len(found.cells) <= WIDTH
    assert ribbon(table("d" * count), "x", half=False).table.total == count


def test_the_worst_case_is_bounded() -> None:
    found = ribbon(table("dc" * 5000), "x", half=False)
    assert len(found.cells) <= WIDTH
    found = ribbon(table("d" * 10000, partition=" ".join(map(str, range(10000)))), "x", half=False)
    assert len(found.bands) <= WIDTH


def test_partitions_and_copies() -> None:
    crossed = CrossingTable(3, ["a", "b"], "cd", "0 -1", "2 3", "4000 -1")
    found = ribbon(table("ddcd", partition="0 0 -1 1", crossings=crossed), "x", half=False)
    assert [(band.x, band.width, band.odd) for band in found.bands] == [(0, 500, False), (750, 250, True)]
    assert [(tick.x, tick.up) for tick in found.ticks] == [(500, False), (750, True)]
    assert found.ticks[0].height > found.ticks[1].height
    assert [(row.size, row.up, row.producer, row.consumer) for row in found.copied] == [
        ("4.0 kB", False, "/block.0/<b>0", "/block.0/<b>2"),
        ("unknown", True, "an input", "/block.0/<b>3"),
    ]
    assert (found.table.crossings.total, found.cut, found.moved) == (3, 1, "4.0 kB, 2 of unknown size")
    assert found.away[0].count == 1


def test_the_script_gets_every_node_and_nothing_ends_its_element() -> None:
    names = [
        "/a/</script><img src=x onerror=alert(1)>",
        "/a/</script>ü\u2028\ud800\u202e",
        "/a/😀b",
        "/a/😀c",
        "",
        "&amp;",
    ]
    text = payload(NodeTables(table("dcdddd", names=names)), half=False)
    assert not set("<>&") & set(text)
    (data,) = json.loads(text)["tables"]
    read, last = [], ""
    for count, rest in zip(data["shared"].split(), data["names"], strict=True):
        last = last[: int(count)] + rest
        read.append(last)
    assert read == [printable(name) for name in names]
    assert data["kinds"] == "dcdddd"
    assert payload(None, half=False) == "{}"


def test_errors_on_their_scale() -> None:
    outputs = [
        OutputMetrics("good", True, error=1e-3, bound=1e-2, noise=1e-6),
        OutputMetrics("off", False, error=float("inf"), bound=1e-2),
        OutputMetrics("same", True),
    ]
    record = RunRecord(
        command="prepare", input="m", verdicts=[Verdict(Check("proof"), "failed", "off", outputs=outputs)]
    )
    rows, marks, cut = error_rows(record)
    assert [row.output for row in rows] == ["off", "good", "same"]
    assert (rows[0].error, rows[2].error, rows[2].bound) == (100, 0, None)
    assert rows[1].noise is not None
    assert rows[1].bound is not None
    assert rows[1].noise < rows[1].error < rows[1].bound
    assert [mark.at for mark in marks] == sorted(mark.at for mark in marks)
    assert cut == 0
    record.verdicts = [Verdict(Check("proof"), "passed", outputs=outputs[:1] * 100)]
    assert error_rows(record)[2] == 76


def test_seconds_of_steps() -> None:
    steps = [StepRecord("pin", "changed", 0.5, 1000, 8, 10, 10), StepRecord("fp16", "unchanged", 2.0, 8, 8, 10, 5)]
    bars = step_bars(RunRecord(command="prepare", input="m", steps=steps))
    assert [bar.weights for bar in bars] == [100, 50]
    assert [(bar.bar, bar.nodes, bar.size) for bar in bars] == [(25, "1,000 → 8", "10 B"), (100, "8", "10 B → 5 B")]


def test_the_profile_and_the_blocks_along_the_model() -> None:
    found = profile_along(Profile(["a", "b", "c"], [1.0, 1e6, None]))
    assert found is not None
    assert found.beyond == 1
    assert [y < found.limit for _, y in found.points] == [False, True]
    assert "1e+06, made by b" in found.largest
    assert profile_along(Profile([], [])) is None
    facts = StepFacts(casts=1, blocks=[Block("the 2 nodes from n1 to n2", 0.1, 2), Block("n3", 1e-4)])
    step = StepRecord("fp16", "changed", 1.0, 4, 4, 1, 1, options={"tolerance": 0.01}, facts=facts)
    (half,) = half_steps(RunRecord(command="prepare", input="m", steps=[step]))
    along = blocks_along(half, table("dddd", names=["n0", "n1", "n2", "n3"]), half.tolerance)
    assert along is not None
    assert [(x, width) for x, _, width in along.bars] == [(250, 500), (750, 250)]
    assert along.beyond == 1
    assert along.bars[0][1] < along.limit < along.bars[1][1]
    assert blocks_along(half, None, half.tolerance) is None


def test_a_code_unfolds_its_page() -> None:
    page = page_html("DP502")
    assert "<h3>What</h3>" in page
    assert "<a" not in page
    assert page_html("DP999") == ""


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}"]
)
def test_names_of_nodes_are_text(name: str) -> None:
    reasons = [{"code": name, "text": name}] * 3
    facts = {"nodes": {"before": TABLE | {"names": [name] * 3, "operators": [name, name], "reasons": reasons}}}
    record = RunRecord(command="prepare", input=name, facts=msgspec.convert(facts, RunFacts))
    page = render_html(RunRecord.from_json(record.to_json()))
    assert page.count("<script") == 2
    assert "<img" not in page
    assert "49" not in page.partition("<title>")[2].partition("</title>")[0]


def test_a_page_of_many_nodes_is_small() -> None:
    count = 5000
    changes = {
        "operator": "0 " * count,
        "names": [f"/model/layers.{i // 20}/attention/dense_{i}/MatMul" for i in range(count)],
    }
    tables = NodeTables(table("d" * count, **changes), table("d" * count, **changes))
    record = RunRecord(command="prepare", input="m", facts=RunFacts(nodes=tables))
    assert len(render_html(record)) < 1_500_000


def _bisected(**changes: Any) -> RunRecord:
    said = {
        "reference": "a.onnx",
        "candidate": "b.onnx",
        "nodes": ["</p><b>Mul_2"],
        "values": ["x0", "x1", "x3"],
        "places": [0, 1, 3],
        "errors": [0.0, 2e-6, None],
        "total_nodes": 4,
        "bound": 1e-5,
    }
    facts = RunFacts(bisection=msgspec.convert(said | changes, Bisected))
    return RunRecord(command="bisect", input="b.onnx", exit_code=1, error=RunError("parts"), facts=facts)


def test_the_error_along_the_model_is_on_a_log_scale_against_the_bound() -> None:
    said = _bisected().facts.bisection
    assert said is not None
    along = errors_along(said)
    assert along is not None
    assert [x for x, _ in along.points] == [125.0, 375.0, 875.0]
    heights = [y for _, y in along.points]
    assert heights[0] == 100.0, "no error stands at the bottom"
    assert heights[2] == 0.0, "what is not finite stands at the top"
    assert heights[2] < along.limit < heights[1] < heights[0]
    assert (along.beyond, along.largest) == (1, "The largest is not finite, of x3.")
    page = render_html(_bisected())
    assert "Error along the model" in page
    assert "</p><b>Mul_2" not in page
    assert "1 beyond 1e-05" in render_text(_bisected())


def test_an_error_at_the_bound_is_not_beyond_it() -> None:
    record = _bisected(errors=[0.0, 1e-5, 2e-5])
    said = record.facts.bisection
    assert said is not None
    along = errors_along(said)
    assert along is not None
    assert along.beyond == 1
    assert "1 beyond 1e-05" in render_text(record)


def test_a_scale_of_many_powers_of_ten_has_few_marks() -> None:
    said = _bisected(errors=[0.0, 1e-11, 1e-3]).facts.bisection
    assert said is not None
    along = errors_along(said)
    assert along is not None
    assert [mark.text for mark in along.marks] == ["1e-11", "1e-9", "1e-7", "1e-5", "0.001"]


def test_a_bisection_without_values_has_no_picture() -> None:
    record = _bisected(values=[], places=[], errors=[])
    said = record.facts.bisection
    assert said is not None
    assert errors_along(said) is None
    assert "Error along the model" not in render_html(record)


@pytest.mark.parametrize("wrong", [{"places": [0, 1, 4]}, {"places": [0, 1]}, {"errors": "no"}, {"settings": [["a"]]}])
def test_a_bisection_that_contradicts_itself_is_no_record(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        RunRecord.from_json(_bisected(**wrong).to_json())
