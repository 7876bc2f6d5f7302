"""prepare --diff: the changes from one run to the next."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import onnx
import onnx_ir as ir
import pytest

import dmlprep
from dmlprep.core.errors import InputError
from dmlprep.record import Check, OutputMetrics, RunRecord, Verdict, finding
from dmlprep.record.changes import VerdictChange
from dmlprep.report.changes import change_lines
from tests.changed import added, flip
from tests.directml.placement.graphs import parsed
from tests.directml.placement.test_report import CONV
from tests.in_process import Run

_RELU = "g (float[n,4] x) => (float[n,4] y) { a = Relu (x)  y = Neg (a) }"


def _model(path: Path, text: str, opset: int = 20) -> Path:
    onnx.save(ir.to_proto(parsed(text, opset).ir), path)
    return path


def test_the_changes_of_a_second_run(run: Run, tmp_path: Path) -> None:
    model, out = _model(tmp_path / "m.onnx", _RELU), tmp_path / "out"
    line = ("prepare", model, "-o", out, "--device", "cpu", "--force")
    assert run(*line, "--pin", "n=2", "-q").code == 0
    assert run(*line, "--pin", "n=2", "-q", "--diff", out).out.splitlines()[1:] == [f"nothing changed since {out}"]
    done = run(*line, "--pin", "n=3", "-r", "@vision-fp16", "--diff", out / "run.json")
    assert done.code == 0
    lines = done.out[done.out.index("changes since") :].splitlines()
    assert lines[:3] == [
        f"changes since {out / 'run.json'}:",
        "  recipe: @static-fp32 -> @vision-fp16",
        '  pins: {"n": 2} -> {"n": 3}',
    ]
    assert "  nodes: 2 -> 4" in lines
    assert "  operators: Cast 0 -> 2" in lines
    assert any(one.startswith("  fp16 emulation (storage): none -> passed (worst error ") for one in lines)


def test_another_model_and_its_weights(run: Run, tmp_path: Path) -> None:
    model, out = added(tmp_path / "a.onnx"), tmp_path / "out"
    line = ("prepare", model, "-o", out, "--device", "cpu", "--force", "--pin", "batch=2", "-q", "--format", "json")
    first = json.loads(run(*line).out)
    assert "changes" not in first
    flip(tmp_path / "a.data")
    second = json.loads(run(*line, "--diff", out).out)
    assert second["command"] == "prepare"
    assert [one["name"] for one in second["changes"]["settings"]] == ["files.a.data"]
    assert RunRecord.read(out).facts.digests[str(tmp_path / "a.data")] == second["changes"]["settings"][0]["after"]


def test_a_node_that_moves_to_the_cpu(tmp_path: Path) -> None:
    """DirectML has no Conv of opset 22."""
    model = _model(tmp_path / "m.onnx", CONV, 17)

    def prepared(opset: int) -> RunRecord:
        settings = {"step.opset.version": opset}
        return dmlprep.prepare(model, out=tmp_path / str(opset), settings=settings, device="cpu")

    old, new = prepared(17), prepared(22)
    found, back = dmlprep.diff_records(old, new), dmlprep.diff_records(tmp_path / "22", tmp_path / "17")
    assert (found.to_cpu, found.to_dml, back.to_cpu, back.to_dml) == (["c"], [], [], ["c"])
    assert {one.name: (one.before, one.after) for one in found.numbers} == {
        "opset": (17, 22),
        "dml_nodes": (1, 0),
        "compute_nodes_on_cpu": (0, 1),
        "partitions": (1, 0),
        "memory": (old.facts.memory and old.facts.memory.peak, new.facts.memory and new.facts.memory.peak),
    }
    assert "  now on the CPU: c" in change_lines(found, "17")


def _record(**fields: object) -> RunRecord:
    return msgspec.structs.replace(RunRecord("prepare", "m.onnx"), **fields)


def test_verdicts_by_check() -> None:
    cpu, dml = Check("parity", "cpu"), Check("parity", "dml")
    near, far = OutputMetrics("y", True, max_rel=0.00123), OutputMetrics("y", False, max_rel=0.5)
    old = _record(verdicts=[Verdict(cpu, "passed", outputs=[near]), Verdict(dml, "not-run", "no DirectML")])
    again = OutputMetrics("y", True, max_rel=0.00122)
    assert not dmlprep.diff_records(old, _record(verdicts=[Verdict(cpu, "passed", outputs=[again]), old.verdicts[1]]))
    new = _record(exit_code=1, verdicts=[Verdict(cpu, "failed", "differs", outputs=[far])])
    found = dmlprep.diff_records(old, new)
    assert found.verdicts == [
        VerdictChange("parity on cpu", "passed", "failed", 0.00123, 0.5),
        VerdictChange("parity on dml", "not-run", None),
    ]
    assert change_lines(found, "old") == [
        "changes since old:",
        "  exit code: 0 -> 1",
        "  parity on cpu: passed (worst error 0.0012) -> failed (worst error 0.5)",
        "  parity on dml: not-run -> none",
    ]


def test_findings_by_code_and_node() -> None:
    one, other = finding("DP205", "free", node="n"), finding("DP501", "4 nodes", node="a")
    found = dmlprep.diff_records(
        _record(findings=[one, other]), _record(findings=[finding("DP501", "5 nodes", node="a"), other])
    )
    assert (found.new, found.gone) == ([], [one])
    assert change_lines(found, "x")[1].startswith("  gone: ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "github", "--diff", "OUT"], "--format text or json"),
        (["--bucket", "n=2", "--diff", "OUT"], "without --bucket"),
        (["--diff", "nothing"], "nothing: cannot be read"),
        (["--diff", "CHECK"], "a record of check, not of prepare"),
    ],
)
def test_it_needs_one_earlier_run_of_prepare(run: Run, tmp_path: Path, options: list[str], words: str) -> None:
    model = _model(tmp_path / "m.onnx", _RELU)
    check = tmp_path / "check.json"
    dmlprep.write_record(dmlprep.check(model), check)
    dmlprep.write_record(_record(), tmp_path / "run.json")
    names = {"OUT": str(tmp_path), "CHECK": str(check)}
    done = run("prepare", model, "-o", tmp_path / "out", *(names.get(one, one) for one in options))
    assert (done.code, words in done.err) == (2, True), done.err
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError):
        dmlprep.diff_records(check, check)
