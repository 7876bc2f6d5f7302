"""SARIF: Microsoft's validator finds nothing against it, by the standard's rules and by GitHub's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dmlprep.record import CODES, RunRecord, finding
from dmlprep.report.sarif import render, to_object
from tests.cli.buildsys.tools import MODELS, ROOT, TOOLS, needs_tools, run
from tests.in_process import Run


def _record(model: str, target: str, *codes: str, exit_code: int = 0) -> RunRecord:
    found = [finding(code, f"about {code}") for code in codes]
    return RunRecord(command="check", input=model, target=target, version="1", findings=found, exit_code=exit_code)


def test_models_of_one_target_are_one_run() -> None:
    # Code scanning takes 20 runs in a file, and no two of one category.
    records = [_record(f"m{i}.onnx", "ort-1.30", "DP201", exit_code=i % 2) for i in range(30)]
    first, second = to_object([*records, _record("m0.onnx", "ort-1.24", "DP502")])["runs"]
    assert [run["automationDetails"]["id"] for run in (first, second)] == [
        "dmlprep/check/ort-1.30/",
        "dmlprep/check/ort-1.24/",
    ]
    assert len(first["results"]) == len(first["artifacts"]) == 30
    assert [rule["id"] for rule in first["tool"]["driver"]["rules"]] == ["DP201"]
    assert first["invocations"][0]["exitCode"] == 1


def test_a_rule_explains_itself_by_its_page() -> None:
    (rule,) = to_object([_record("m.onnx", "ort-1.30", "DP201")])["runs"][0]["tool"]["driver"]["rules"]
    assert rule["fullDescription"]["text"].startswith("A shape is known only at run time, so DirectML does not fuse")
    assert rule["help"]["text"].startswith("Pin the dimension")
    assert "## Source" in rule["help"]["markdown"]


def _complaints(log: Path) -> list[str]:
    options = ("--rule-kind", "Sarif;Ghas", "--level", "Error;Warning", "--log", "ForceOverwrite")
    report = log.with_suffix(".report")
    done = run(TOOLS.sarif, "validate", *options, "--output", report, log, cwd=log.parent, env=TOOLS.environment())
    assert "Analysis completed successfully" in done.out, done.out
    json.loads(report.read_text(encoding="utf-8-sig"))
    return [line for line in done.out.splitlines() if ": error " in line or ": warning " in line]


@pytest.mark.builds
@needs_tools
@pytest.mark.slow
def test_the_validator_accepts_every_code(tmp_path: Path) -> None:
    log = tmp_path / "all.sarif"
    log.write_bytes(render([_record("models/m.onnx", "ort-1.30", *sorted(CODES))]))
    assert _complaints(log) == []
    assert log.stat().st_size < 10 << 20  # GitHub takes 10 MB, packed


@pytest.mark.builds
@needs_tools
@pytest.mark.slow
def test_the_validator_accepts_what_check_writes(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    models = [path.relative_to(ROOT) for path in sorted(MODELS.glob("*.onnx"))]
    assert len(models) > 20
    done = run("check", *models, "--format", "sarif")
    log = tmp_path / "check.sarif"
    log.write_text(done.out, encoding="utf-8")
    assert _complaints(log) == []


@pytest.mark.builds
@needs_tools
def test_the_validator_does_complain(tmp_path: Path) -> None:
    log = tmp_path / "bad.sarif"
    written = to_object([_record("m.onnx", "ort-1.30", "DP201")])
    del written["runs"][0]["tool"]["driver"]["rules"][0]["fullDescription"]
    log.write_text(json.dumps(written))
    assert any("GH2012" in line for line in _complaints(log))
