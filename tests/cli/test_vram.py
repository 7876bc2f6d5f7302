"""``--vram`` of check and prepare: exit codes, what is said, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner, Result

import dmlprep
from dmlprep.cli.check import command as check
from dmlprep.cli.prepare import command as prepare
from dmlprep.core.errors import UsageError
from dmlprep.record import RunRecord
from dmlprep.report.html import render_html
from dmlprep.report.text import render_text
from tests.fixtures_index import fixture

CNN = fixture("residual_cnn").path
_FITS, _TOO_LITTLE = "1GB", "200kB"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with fixed sizes."""
    out = tmp_path_factory.mktemp("memory") / "out"
    assert dmlprep.prepare(CNN, out=out, pins={"batch": 4}, device="cpu", vram=_FITS).exit_code == 0
    return out


def _run(command: object, *arguments: object) -> Result:
    return CliRunner().invoke(command, list(map(str, arguments)), standalone_mode=False)  # type: ignore[arg-type]


def test_check_says_it_and_holds_it_against_vram(prepared: Path) -> None:
    model = prepared / "model.onnx"
    plain = _run(check, model, "--no-project", "-v")
    assert plain.return_value == 0
    assert "memory of the device: about 0." in plain.stdout
    assert _run(check, model, "--no-project", "--vram", _FITS).return_value == 0
    short = _run(check, model, "--no-project", "--vram", _TOO_LITTLE)
    assert short.return_value == 1
    assert "error DP530" in short.stdout
    assert "fix: " in short.stdout
    assert "of the device's memory, and it has 0.2 MB" in short.stdout


def test_json_has_the_estimate_and_what_helps(prepared: Path) -> None:
    answer = _run(check, prepared / "model.onnx", "--no-project", "--vram", _TOO_LITTLE, "--format", "json")
    found = json.loads(answer.stdout)
    memory = found["memory"]
    assert memory["peak"] == memory["weights"] + memory["activations"] + memory["feeds"]
    assert {way["how"] for way in memory["ways"]} >= {"batch 1"}
    assert found["exit_code"] == 1
    assert [one["facts"]["peak"] for one in found["findings"] if one["code"] == "DP530"] == [memory["peak"]]


def test_free_sizes_are_not_known_and_do_not_pass() -> None:
    free = _run(check, CNN, "--no-project", "--vram", _FITS)
    assert free.return_value == 3
    assert "DP531" in free.stdout
    assert "batch" in free.stdout


def test_prepare_writes_nothing_that_does_not_fit(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = (CNN, "-o", out, "--device", "cpu", "--no-project")
    short = _run(prepare, *arguments, "--pin", "batch=4", "--vram", _TOO_LITTLE)
    assert short.return_value == 1
    assert "DP530" in short.stdout
    free = _run(prepare, *arguments, "--vram", _FITS)
    assert free.return_value == 3
    assert "DP531" in free.stdout
    assert not out.exists()


def test_a_run_whose_sizes_are_refused_shows_no_memory_of_free_sizes(tmp_path: Path) -> None:
    text = "g (float[batch,4] x, float[2,4] z) => (float[batch,4] y) { y = Add (x, z) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'), tmp_path / "m.onnx")
    refused = _run(prepare, tmp_path / "m.onnx", "-o", tmp_path / "out", "--pin", "batch=3", "--no-project")
    assert refused.return_value == 1
    assert "DP202" in refused.stdout
    assert "memory of the device" not in refused.stdout


def test_record_reports_and_contract_hold_it(prepared: Path) -> None:
    record = RunRecord.read(prepared / "run.json")
    found = record.facts.memory
    assert found is not None
    assert found.known
    assert found.ways == []
    assert "memory of the device: about" in render_text(record)
    assert "<dt>device memory</dt><dd>about" in render_html(record)


def test_the_project_file_says_it_too(tmp_path: Path, prepared: Path) -> None:
    project = tmp_path / "dmlprep.toml"
    project.write_text(f'vram = "{_TOO_LITTLE}"\n')
    assert _run(check, prepared / "model.onnx", "--project", project).return_value == 1
    assert _run(check, prepared / "model.onnx", "--project", project, "--vram", _FITS).return_value == 0
    out = tmp_path / "out"
    arguments = (CNN, "-o", out, "--device", "cpu", "--pin", "batch=4", "--project", project)
    assert _run(prepare, *arguments).return_value == 1


def test_what_is_no_amount_of_memory_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an amount of memory"):
        dmlprep.prepare(CNN, out=tmp_path / "out", pins={"batch": 1}, vram="much")
    with pytest.raises(UsageError, match="not an amount of memory"):
        dmlprep.check(CNN, vram="-4GB")
