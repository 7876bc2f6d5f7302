"""``check``: findings, text, JSON, SARIF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import onnx_ir as ir
import pytest

import dmlprep
from dmlprep.directml.placement.report import examine, examine_for
from dmlprep.directml.quirks import codes
from dmlprep.directml.targets import find_target, target_names
from dmlprep.record import Check, Finding, RunRecord, Verdict
from dmlprep.report import placement_json, sarif
from dmlprep.report.placement_text import Line, by_release, lines, summary
from tests.directml.placement.graphs import parsed
from tests.sarif import SARIF

CONV = "g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,6,6] y) { [c] y = Conv (x, w) }"
ALLOWZERO = "g (float[2,6] x) => (float[3,4] y) <int64[2] s = {3, -1}> { [r] y = Reshape <allowzero = 1> (x, s) }"
MISH = "g (float[2,4] x) => (float[2,4] y) <float[4] s = {1, 1, 1, 1}> { z = Mish (x) y = LayerNormalization (z, s) }"


def _record(text: str, opset: int = 17, target: str = "ort-1.24") -> RunRecord:
    return examine(parsed(text, opset), find_target(target)).record


def _codes(record: RunRecord) -> set[str]:
    return {f.code for f in record.findings}


def test_a_node_off_directml_is_a_finding_with_its_reason() -> None:
    record = _record(CONV, 22)
    (found,) = [f for f in record.findings if f.code == "DP501"]
    assert found.severity == "warning"
    assert found.node == "c"
    assert "1 node Conv-22 on the CPU: DirectML has version 11, not 22" in found.message
    assert record.exit_code == 0
    assert record.facts.placement is not None
    assert record.facts.placement.compute_nodes_on_cpu == 1
    assert record.facts.best_opset == 21
    assert found.remedy.startswith("lower the opset to 21")


def test_a_reason_that_not_all_nodes_of_a_finding_have_is_an_example() -> None:
    record = _record("g (float[n] x, float[m] z) => (float[n] y, float[m] w) { y = Relu (x) w = Relu (z) }")
    (found,) = [f for f in record.findings if f.code == "DP511"]
    assert found.message == "2 nodes on DirectML run unfused (Relu 2): for example, x has free dimensions n"


def test_a_quirk_that_fails_is_an_error() -> None:
    record = _record(ALLOWZERO)
    assert "DP601" in _codes(record)
    assert record.exit_code == 1


@pytest.mark.parametrize(("target", "code"), [("ort-1.17", "DP520"), ("winml-11", "DP520"), ("ort-1.24", "")])
def test_the_opset_and_the_ir_version_must_load(target: str, code: str) -> None:
    found = _codes(_record("g (float[2] x) => (float[2] y) { y = Relu (x) }", 21, target))
    assert ("DP520" in found) == bool(code)
    assert ("DP521" in found) == (target == "winml-11")


def test_an_invalid_file_is_an_error() -> None:
    record = _record("g (float[2] x) => (float[2] y) { y = Relu (x, x) }")
    assert "DP003" in _codes(record)
    assert record.exit_code == 2  # no valid input, as prepare says
    record = _record("g (float[2] x) => (float[3] y) { y = Relu (x) }")
    assert "DP003" in _codes(record)
    assert record.exit_code == 1  # what only shape inference sees is refused by the step that meets it


def test_a_decomposed_gelu_at_opset_20() -> None:
    text = (
        "g (float[2,4] x) => (float[2,4] y) <float r = {1.4142135}, float one = {1}, float half = {0.5}> "
        "{ d = Div (x, r)  e = Erf (d)  a = Add (e, one)  m = Mul (x, a)  y = Mul (m, half) }"
    )
    assert "DP508" in _codes(_record(text, 20))
    assert "DP508" not in _codes(_record(text, 19))
    assert "DP508" not in _codes(_record(text, 20, "ort-1.19"))


def test_free_dimensions_are_notes() -> None:
    record = _record("g (float[batch,2] x) => (float[batch,2] y) { y = Relu (x) }")
    assert [(f.code, f.severity, f.node) for f in record.findings if f.code == "DP205"] == [("DP205", "note", "batch")]


def test_the_api_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(ir.to_proto(parsed(CONV, 22).ir), path)
    record = dmlprep.check(path)
    assert _codes(record) == _codes(_record(CONV, 22))


def test_json_lists_every_node_with_provider_and_reason() -> None:
    model = parsed(CONV, 22)
    done = examine(model, find_target())
    whole = json.loads(placement_json.render([[placement_json.to_object(done.record, done.placement)]]))
    assert whole["format"] == 1
    (node,) = whole["nodes"]
    assert node["name"] == "c"
    assert node["operator"] == "Conv"
    assert node["provider"] == "CPUExecutionProvider"
    assert node["reason"] == "DP501"
    assert node["since_version"] == 22
    assert node["partition"] is None
    assert whole["summary"]["compute_on_cpu"] == ["c"]


def test_json_says_how_many_nodes_it_leaves_out() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Relu (x)  b = Neg (a)  y = Abs (b) }"
    done = examine(parsed(text, 17), find_target())
    whole = placement_json.to_object(done.record, done.placement)
    short = placement_json.to_object(done.record, done.placement, 2)
    assert (len(whole["nodes"]), whole["nodes_left_out"]) == (3, 0)
    assert (short["nodes"], short["nodes_left_out"]) == (whole["nodes"][:2], 1)
    assert short["summary"] == whole["summary"]


def test_json_of_several_targets_is_a_list() -> None:
    model = parsed(CONV, 17)
    rows = [examine(model, find_target(name)) for name in target_names()]
    whole = json.loads(placement_json.render([[placement_json.to_object(r.record, r.placement) for r in rows]]))
    assert [t["target"] for t in whole["targets"]] == target_names()


@pytest.mark.parametrize(("text", "opset"), [(CONV, 22), (ALLOWZERO, 17), (MISH, 18)])
def test_several_targets_are_told_what_each_is_told_alone(text: str, opset: int) -> None:
    targets = [find_target(name) for name in target_names()]
    together = examine_for(parsed(text, opset), targets)
    for one, target in zip(together, targets, strict=True):
        alone = examine(parsed(text, opset), target)
        assert one.record.findings == alone.record.findings
        assert one.record.facts == alone.record.facts
        assert one.record.exit_code == alone.record.exit_code


@pytest.mark.parametrize(("text", "opset"), [(CONV, 22), (ALLOWZERO, 17), (CONV, 17)])
def test_sarif_is_valid(text: str, opset: int) -> None:
    log = json.loads(sarif.render([_record(text, opset)]))
    jsonschema.validate(log, SARIF)
    run = log["runs"][0]
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(ids) == len(set(ids))
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]


def test_sarif_of_every_code_is_valid() -> None:
    record = RunRecord(command="check", input="some dir/ümläut model.onnx", target="ort-1.24", version="1")
    facts: dict[str, Any] = {"numbers": [1], "flag": True, "none": None}
    record.findings = [Finding(c, row.severity, "what", "n", facts, row.remedy) for c, row in codes().items()]
    log = json.loads(sarif.render([record]))
    jsonschema.validate(log, SARIF)
    uri: Any = log["runs"][0]["artifacts"][0]["location"]["uri"]
    assert uri == "some%20dir/%C3%BCml%C3%A4ut%20model.onnx"


def test_text_names_the_operator_its_code_and_the_remedy() -> None:
    target = find_target()
    done = examine(parsed(CONV, 22), target)
    text = "\n".join(lines(done.record, done.placement, target))
    assert "on DirectML: 0 of 1 nodes (0 %)" in text
    assert "1 x Conv-22  DP501 DirectML has version 11, not 22" in text
    assert "lower the opset to 21" in text


@pytest.mark.parametrize(("outcome", "colour"), [("passed", "green"), ("failed", "yellow")])
def test_a_check_that_ran_has_a_line_of_its_own(outcome: Any, colour: str) -> None:
    record = _record(CONV, 17)
    record.verdicts.append(Verdict(Check("placement", "dml"), outcome, "1 node, as predicted"))
    first, _ = summary(record)
    assert first[1] == Line(f"placement on dml: {outcome}", ", 1 node, as predicted", colour)


def test_the_table_says_from_which_release_on_it_runs_whole() -> None:
    model = parsed("g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1, 1, 2, 2}> { y = Resize (x, , s) }", 18)
    rows = [(t, *_pair(model, t)) for t in map(find_target, target_names())]
    assert by_release("m.onnx", rows)[-1] == "all compute runs on DirectML from ort-1.19 on"
    last, record, _ = rows[-1]
    assert "all compute" not in by_release("m.onnx", [*rows, (last, record, None)])[-1]


def _pair(model: Any, target: Any) -> tuple[Any, Any]:
    done = examine(model, target)
    return done.record, done.placement
