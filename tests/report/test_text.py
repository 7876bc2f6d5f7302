"""The text of a run: the outputs that fail, and the nodes on the CPU, each in its own list."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from dmlprep.directml.placement.report import examine
from dmlprep.directml.quirks import codes
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.record import Check, Finding, OutputMetrics, RunRecord, Verdict
from dmlprep.report.grouping import finding_lines
from dmlprep.report.placement_text import lines
from dmlprep.report.text import render_text


def test_a_failed_proof_lists_the_outputs_that_fail() -> None:
    outputs = [OutputMetrics("good", True, max_abs=1e-4), OutputMetrics("off", False, max_abs=0.25)]
    record = RunRecord(command="compare", input="m.onnx", exit_code=1)
    record.verdicts = [Verdict(Check("parity"), "failed", "output 'off' differs", outputs=outputs)]
    text = render_text(record)
    assert "  off: max abs 0.25, " in text
    assert "  good: " not in text


def test_a_node_on_the_cpu_is_in_one_list() -> None:
    text = """<ir_version: 10, opset_import: ["" : 22]>
    g (float[1,1,4,4] x, float[1,1,2,2] w, bool c) => (float[1,1,3,3] y, float[1,1,4,4] z) {
        y = Conv (x, w)
        z = If (c) <then_branch = t () => (float[1,1,4,4] p) { p = Neg (x) },
                    else_branch = e () => (float[1,1,4,4] q) { q = Abs (x) }>
    }"""
    target = find_target("ort-1.24")
    done = examine(Model(ir.from_proto(onnx.parser.parse_model(text))), target)
    shown = lines(done.record, done.placement, target)
    compute, other = (shown.index(title) for title in ("compute on the CPU:", "on the CPU, no compute:"))
    assert compute < other
    assert ["Conv-22" in line for line in shown[compute + 1 : other]].count(True) == 1
    assert [line.split()[2] for line in shown[other + 1 :] if " x " in line] == ["If-21"]


def test_findings_of_a_quirk_have_its_title() -> None:
    title = codes()["DP619"].title
    first, *items = finding_lines([Finding("DP619", "error", f"node {name}") for name in "ab"])
    assert first == f"error DP619 {title}, 2 times:"
    assert len(items) >= 2
