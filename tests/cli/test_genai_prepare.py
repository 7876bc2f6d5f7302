"""``dmlprep genai prepare``: exit codes, and what stands on stdout and stderr."""

from __future__ import annotations

import json
from pathlib import Path

from tests.genai.decoders import decoder, folder
from tests.genai.proof.ensembles import heard, listener
from tests.in_process import Run
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here


def test_it_writes_and_says_how_to_load(run: Run, tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    done = run("genai", "prepare", str(source), "-o", str(tmp_path / "out"), "--fallback", "cpu", "--no-proof")
    assert done.code == 0, done.err
    assert f"wrote {tmp_path / 'out'}" in done.out
    assert f"og.Config({str(tmp_path / 'out' / 'dml')!r})" in done.out
    assert f"og.Config({str(tmp_path / 'out' / 'cpu')!r})" in done.out
    assert "fp16" in done.err


def test_json_is_the_record(run: Run, tmp_path: Path) -> None:
    source, record = folder(tmp_path / "in"), tmp_path / "record.json"
    done = run(
        "genai", "prepare", str(source), "-o", str(tmp_path / "out"), "--no-proof", "--format", "json", "-q",
        "--record", str(record),
    )  # fmt: skip
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said["command"] == "genai prepare"
    assert json.loads(record.read_text()) == said
    assert done.err == ""


def test_a_refused_folder_is_exit_1_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    source = folder(tmp_path / "in", decoder(softcap=30.0))
    done = run("genai", "prepare", str(source), "-o", str(tmp_path / "out"), "-q")
    assert done.code == 1
    assert "DP878" in done.out
    assert not (tmp_path / "out").exists()


def test_wrong_commands_are_exit_2(run: Run, tmp_path: Path) -> None:
    source = folder(tmp_path / "in")
    for more in (["--precision", "fp8"], ["--recipe", "@none"], ["--device-index", "-1"]):
        done = run("genai", "prepare", str(source), "-o", str(tmp_path / "out"), *more)
        assert (done.code, done.out) == (2, ""), more
    assert run("genai", "prepare", str(tmp_path / "none"), "-o", str(tmp_path / "out")).code == 2
    assert not (tmp_path / "out").exists()


def test_an_earlier_result_is_replaced_with_force_alone(run: Run, tmp_path: Path) -> None:
    source, line = folder(tmp_path / "in"), ["-o", str(tmp_path / "out"), "--no-proof", "-q"]
    assert run("genai", "prepare", str(source), *line).code == 0
    assert run("genai", "prepare", str(source), *line).code == 2
    assert run("genai", "prepare", str(source), *line, "--force").code == 0


def test_in_brief_it_says_what_was_proved(run: Run, tmp_path: Path) -> None:
    source = listener(tmp_path / "in", heard())
    done = run("genai", "prepare", str(source), "-o", str(tmp_path / "out"), "-q", "--steps", "2")
    assert done.code == 0, done.err
    assert ": proved on the CPU, not tried on DirectML: " in done.out
    assert "with synthetic inputs, prompt and steps and encoder proved" in done.out
