"""The public functions: from Python as from the command line."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlprep
from dmlprep import api, runtime
from dmlprep.core.errors import CheckNotRun, InputError, OutputError, UsageError
from dmlprep.parity.bisection.repro import FILES
from dmlprep.record import RunRecord
from dmlprep.runtime import DmlStatus, SessionOptions, open_cpu
from tests.fixtures_index import fixture
from tests.in_process import Run
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here
from tests.parity.models import perturbed
from tests.system import WINDOWS

CNN = fixture("residual_cnn").path
NEW = fixture("opset22_cnn").path


def test_all_of_the_api_is_in_the_package_and_in_the_docs() -> None:
    functions = {name for name in api.__all__ if name[0].islower()}
    assert set(dmlprep.__all__) == {*api.__all__, "__version__"}
    page = (Path(__file__).parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
    assert [name for name in sorted(functions) if f"`{name}`" not in page] == []
    assert [name for name in sorted(functions) if not getattr(dmlprep, name).__doc__] == []


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, dmlprep; "
    code += "print([m for m in ('numpy', 'onnx', 'onnx_ir', 'onnxruntime', 'rich', 'jinja2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """The CNN with one weight made wrong."""
    perturbed(CNN, tmp_path / "wrong.onnx", "weight_1")
    return tmp_path / "wrong.onnx"


def test_bisect_finds_the_node_and_writes_what_shows_it(wrong: Path, tmp_path: Path) -> None:
    told: list[float] = []
    found = dmlprep.bisect(CNN, str(wrong), out=tmp_path / "out", progress=lambda share, text: told.append(share))
    assert (found.outcome, found.exit_code, found.nodes) == ("found", 1, ["Conv_0"])
    assert found.files == [tmp_path / "out" / name for name in FILES]
    assert all(path.exists() for path in found.files)
    assert found.settings == []
    assert told
    assert all(0 <= share <= 1 for share in told)
    with pytest.raises(OutputError, match="the file exists"):
        dmlprep.bisect(CNN, wrong, out=tmp_path / "out")
    assert dmlprep.bisect(CNN, wrong, out=tmp_path / "out", force=True).nodes == ["Conv_0"]


def test_bisect_writes_nothing_unasked_and_tries_settings_asked(wrong: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    found = dmlprep.bisect(CNN, wrong, matrix=True)
    assert found.settings[0].name == "optimization all"
    assert {s.verdict.outcome for s in found.settings} == {"failed"}
    assert found.files == []
    assert sorted(tmp_path.iterdir()) == before


def test_bisect_of_one_model_asks_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "dml_status", lambda **_: DmlStatus(False, "no adapter"))
    found = dmlprep.bisect(CNN)
    assert (found.outcome, found.reason, found.exit_code) == ("not-run", "no adapter", 3)
    agree = dmlprep.bisect(CNN, device="cpu")
    assert (agree.outcome, agree.exit_code) == ("agree", 0)


def test_bisect_says_what_is_wrong_with_the_input(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        dmlprep.bisect(CNN, tmp_path / "missing.onnx")
    with pytest.raises(InputError):
        dmlprep.bisect(CNN, CNN, feeds=[{"nothing": np.zeros(1, np.float32)}])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: dmlprep.compare(CNN, CNN, device="gpu"), "'gpu' is not a device"),  # type: ignore[arg-type]
        (lambda: dmlprep.bisect(CNN, device="auto"), "'auto' is not a device"),  # type: ignore[arg-type]
        (lambda: dmlprep.bench(CNN, device="gpu"), "'gpu' is not a device"),  # type: ignore[arg-type]
        (lambda: dmlprep.bench(CNN, runs=0), "at least one run"),
        (lambda: dmlprep.bench(CNN, seconds=float("nan")), "no negative time"),
        (lambda: dmlprep.compare(CNN, CNN, measures={"logits": "mask"}), "'mask' is not a kind"),
        (lambda: dmlprep.check("a\0.onnx"), "zero byte"),
        (lambda: dmlprep.prepare(CNN, out="a\0"), "zero byte"),
        (lambda: dmlprep.prepare(CNN, out="out", feeds=Path("x.npz")), "pass a list"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_no_command_line_accepts_is_refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        call()


_VALUES = {"language": "python", "node": "x", "name": "A.B", "version": "1", "buckets": ({"batch": 1},)}


def _paths() -> Iterator[tuple[str, str]]:
    """Yield each public function with each of its parameters that are paths."""
    for name in api.__all__:
        if inspect.isfunction(function := getattr(api, name)):
            parameters = inspect.signature(function).parameters
            yield from ((name, own) for own, parameter in parameters.items() if "Path" in str(parameter.annotation))


@pytest.mark.parametrize(("name", "own"), list(_paths()))
def test_a_path_that_no_file_can_have_is_refused(name: str, own: str) -> None:
    function = getattr(api, name)
    for path in ["a\0b"] if WINDOWS else ["a\0b", "\ud800", "n" * 300]:
        values: list[Any] = []
        named: dict[str, Any] = {}
        for other, parameter in inspect.signature(function).parameters.items():
            kind = str(parameter.annotation)
            if parameter.kind is parameter.VAR_KEYWORD or (other != own and parameter.default is not parameter.empty):
                continue
            value = _VALUES.get(other, RunRecord("check", "m") if "RunRecord" in kind else "missing")
            value = path if other == own else value
            value = {"x": Path(path)} if "Mapping[str, Array" in kind else value
            value = [value] if kind.startswith("Sequence[str") else value
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[other] = value
            else:
                values.append(value)
        with pytest.raises(UsageError):
            function(*values, **named)


@pytest.mark.skipif(WINDOWS, reason="Windows has no pipes in folders")
def test_a_pipe_is_not_replaced_by_a_record(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    for write in (dmlprep.write_record, dmlprep.write_depfile):
        with pytest.raises(OutputError, match="not a regular file"):
            write(RunRecord("prepare", "m"), pipe)  # type: ignore[operator]
    assert pipe.is_fifo()


def test_a_checker_that_cannot_run_is_not_the_fault_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_run(*_: object) -> None:
        raise CheckNotRun("the checker cannot run")

    monkeypatch.setattr("dmlprep.pipeline.prepare.demand_valid", cannot_run)
    record = dmlprep.prepare(CNN, out=tmp_path / "out", pins={"batch": 1}, device="cpu")
    assert (record.exit_code, str(record.error), record.findings) == (3, "the checker cannot run", [])


def test_check_fails_on_compute_on_the_cpu_where_asked() -> None:
    plain, asked = dmlprep.check(NEW), dmlprep.check(NEW, fail_on_cpu=True)
    assert (plain.exit_code, plain.error) == (0, None)
    assert asked.exit_code == 1
    assert "compute nodes would run on the CPU, first " in str(asked.error)
    assert plain.facts.placement == asked.facts.placement
    assert dmlprep.check(CNN, fail_on_cpu=True).exit_code == 0
    with pytest.raises(UsageError, match="no known kernels"):
        dmlprep.check(CNN, target="winml-11", fail_on_cpu=True)


def test_check_with_verify_adds_the_session_s_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def opener(path: Path, options: SessionOptions, **_: Any) -> Any:
        return open_cpu(path, options)  # stands in for DirectML: no node is where it should be

    monkeypatch.setattr(runtime, "dml_status", lambda *_, **__: DmlStatus(True))
    monkeypatch.setattr(runtime, "open_dml", opener)
    record = dmlprep.check(CNN, verify=True)
    (verdict,) = record.verdicts
    assert (record.command, record.exit_code) == ("check", 1)
    assert (str(verdict.check), verdict.outcome) == ("placement on dml", "failed")
    assert {f.code for f in verdict.findings} == {"DP523", "DP524"}
    assert record.facts.placement == dmlprep.check(CNN).facts.placement


def test_check_with_verify_is_not_run_without_directml() -> None:
    with pytest.raises(CheckNotRun, match="no DirectML session is possible on this machine"):
        dmlprep.check(CNN, verify=True)
    with pytest.raises(UsageError, match="no known kernels"):
        dmlprep.check(CNN, target="winml-11", verify=True)


def test_explain_a_code() -> None:
    assert dmlprep.explain("DP501").startswith("# DP501: ")
    assert dmlprep.explain("dp501") == dmlprep.explain("DP501")
    assert "DP601" in dmlprep.explain("DP601")  # of a quirk
    with pytest.raises(UsageError, match="unknown code") as error:
        dmlprep.explain("DP999")
    assert len(error.value.fix.removeprefix("close: ").split(", ")) == 3


def test_explain_other_names(run: Run) -> None:
    for words in (("fp16",), ("@vision-fp16",), ("1.24",), ("1.20", "1.24"), ("targets",)):
        assert run("explain", *words).out == dmlprep.explain(*words)
    text = dmlprep.explain("ort-1.24", operator="Conv")
    assert "  Conv: 1, 11\n" in text
    assert "  Relu: " not in text
    with pytest.raises(UsageError, match="unknown target"):
        dmlprep.explain("fp16", "ort-1.24")


def test_explain_a_node(run: Run) -> None:
    node = dmlprep.check(NEW).findings[0].node
    text = dmlprep.explain_node(NEW, node)
    assert text.startswith(f"{node}: ")
    assert "DP501" in text
    assert run("check", "--node", node, NEW).out == text
    with pytest.raises(UsageError, match="no node"):
        dmlprep.explain_node(NEW, "nothing")
    with pytest.raises(InputError):
        dmlprep.explain_node("DP501", "Conv_0")


@pytest.fixture
def prepared(tmp_path: Path) -> RunRecord:
    """The record of a real run."""
    return dmlprep.prepare(
        CNN, out=tmp_path / "out", recipe="@vision-fp16", pins=fixture("residual_cnn").pins, device="cpu"
    )


def test_a_record_is_rendered_in_each_form(prepared: RunRecord, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "out" / "run.json"
    assert dmlprep.render_record(path) == dmlprep.render_record(prepared) == run("report", path).out
    assert "parity on cpu: passed" in dmlprep.render_record(prepared)
    assert dmlprep.render_record(path, "json") == path.read_text(encoding="utf-8")
    run("report", path, "--html", tmp_path / "run.html")
    assert dmlprep.render_record(str(path), "html") == (tmp_path / "run.html").read_text(encoding="utf-8")
    assert json.loads(dmlprep.render_record(dmlprep.check(NEW), "sarif"))["version"] == "2.1.0"


def test_a_record_that_is_none_and_a_form_that_is_none(prepared: RunRecord) -> None:
    with pytest.raises(InputError, match="not a run record"):
        dmlprep.render_record(CNN)
    with pytest.raises(UsageError, match="unknown form 'pdf'"):
        dmlprep.render_record(prepared, "pdf")  # type: ignore[arg-type]


def test_no_colour_comes_into_the_text(prepared: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in dmlprep.render_record(prepared)


def test_a_record_and_its_files_are_written(prepared: RunRecord, tmp_path: Path) -> None:
    dmlprep.write_record(prepared, tmp_path / "again.json")
    with pytest.raises(OutputError, match="the file exists"):
        dmlprep.write_record(prepared, tmp_path / "again.json", force=False)
    assert RunRecord.read(tmp_path / "again.json") == RunRecord.read(tmp_path / "out" / "run.json")
    dmlprep.write_depfile(prepared, tmp_path / "model.d")
    assert CNN.name in (tmp_path / "model.d").read_text(encoding="utf-8")
