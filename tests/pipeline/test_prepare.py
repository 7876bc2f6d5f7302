"""What ``prepare`` writes: all of one run, or what was there before."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper, parser

from dmlprep import api
from dmlprep.core.errors import OutputError
from dmlprep.core.files import FileSet
from dmlprep.core.text.shell import command_line
from dmlprep.directml.placement import Placement
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts
from dmlprep.pipeline import placing
from dmlprep.pipeline.observer import Observer
from dmlprep.portable.locks import held
from dmlprep.record import RunRecord, StepRecord
from tests.in_process import Run
from tests.system import needs_links

MODELS = Path(__file__).resolve().parents[2] / "fixtures" / "models"

on_windows = pytest.mark.skipif(sys.platform != "win32", reason="only Windows keeps open files in their place")

_OLD = {"model.onnx": "old model", "model.onnx.data": "old data", "run.json": "old record"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small valid model: y = x + b, with the size ``batch`` free."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 4] x) => (float[batch, 4] y) '
    path = tmp_path / "in.onnx"
    onnx.save(parser.parse_model(text + "<float[4] b = {1, 2, 3, 4}> { y = Add(x, b) }"), path)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder with an earlier, larger result, whose weights lie in a data file."""
    folder = tmp_path / "out"
    folder.mkdir()
    for name, text in _OLD.items():
        (folder / name).write_text(text)
    return folder


def _seen(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text(errors="replace") for p in folder.iterdir()}


def test_force_replaces_model_record_and_data_together(model: Path, out: Path, run: Run) -> None:
    done = run("prepare", model, "-o", out, "-r", "@check-only", "--force")
    assert done.code == 0, done.err
    assert sorted(p.name for p in out.iterdir()) == ["model.onnx", "run.json"]
    assert json.loads((out / "run.json").read_bytes())["output_sha256"]
    assert onnx.load(out / "model.onnx").graph.node


@on_windows
@pytest.mark.parametrize("name", _OLD)
def test_a_file_that_is_open_elsewhere_is_told_before_the_work(name: str, model: Path, out: Path, run: Run) -> None:
    with (out / name).open():
        done = run("prepare", model, "-o", out, "-r", "@static-fp32", "-p", "batch=1", "--force")
    assert done.code == 2
    assert f"{out / name}: is open in another program" in done.err
    assert "permission" not in done.err
    assert "pin:" not in done.err
    assert _seen(out) == _OLD


class _Opens(Observer):
    """A program that opens a file of the old result while the steps run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def step_finished(self, record: StepRecord) -> None:
        if not hasattr(self, "file"):
            self.file = self.path.open()


@on_windows
@pytest.mark.parametrize("name", _OLD)
def test_a_file_that_is_opened_meanwhile_leaves_the_old_result_whole(name: str, model: Path, out: Path) -> None:
    program = _Opens(out / name)
    with pytest.raises(OutputError) as refused:
        api.prepare(model, out=out, pins={"batch": 1}, force=True, device="cpu", observer=program)
    program.file.close()
    assert f"{out / name}: is open in another program" in str(refused.value)
    assert _seen(out) == _OLD


def test_a_run_that_was_killed_while_it_replaced_is_undone_by_the_next(model: Path, out: Path, run: Run) -> None:
    aside = FileSet(out, "model.onnx").aside
    aside.mkdir()
    (aside / "old.json").write_text(json.dumps({"old": list(_OLD), "new": {}}))
    for name in ("model.onnx", "model.onnx.data"):
        os.replace(out / name, aside / name)
    said = run("compare", model, out / "model.onnx")
    assert said.code == 2
    assert "to restore the file" in said.err
    done = run("prepare", model, "-o", out, "-r", "@check-only")
    assert done.code == 2
    assert "the file exists" in done.err
    assert _seen(out) == _OLD


def test_what_killed_runs_left_is_cleared_and_what_lives_is_not(model: Path, out: Path, run: Run) -> None:
    left, lives, begun = (out / f".dmlprep-run-{name}" for name in ("left", "lives", "begun"))
    begun.mkdir()  # killed before it was held
    for folder in (left, lives):
        folder.mkdir()
        (folder / "lock").write_bytes(b"")
        (folder / "model.onnx").write_text("half")
    with held(lives):
        assert run("prepare", model, "-o", out, "-r", "@check-only", "--force").code == 0
        assert not left.exists()
        assert not begun.exists()
        assert (lives / "model.onnx").exists()


def test_a_demanded_directml_that_is_not_there_ends_the_run_before_the_steps(model: Path, tmp_path: Path) -> None:
    record = api.prepare(model, out=tmp_path / "result", pins={"batch": 1}, require_dml=True)
    assert (record.exit_code, record.steps) == (3, [])
    assert str(record.error).startswith("parity on dml was required but did not run: ")
    assert "[DP803] (dmlprep runtime install" in str(record.error)
    assert [(f.code, f.node) for f in record.all_findings()] == [("DP803", "")]
    assert not (tmp_path / "result").exists()


def test_a_result_that_directml_is_known_to_fail_on_is_refused_where_directml_did_not_run(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,1,4,4] x, float[1,4] rois, int64[1] n) => (float[1,1,2,2] y) {
        [n] y = RoiAlign <mode = "max", output_height = 2, output_width = 2> (x, rois, n)
    }"""
    onnx.save(parser.parse_model(text), tmp_path / "in.onnx")
    record = api.prepare(tmp_path / "in.onnx", out=tmp_path / "result", device="cpu")
    assert record.exit_code == api.check(tmp_path / "in.onnx").exit_code == 1
    assert record.error is not None
    assert (record.error.code, record.error.where) == ("DP641", "node n")
    assert not (tmp_path / "result").exists()
    bare = api.prepare(tmp_path / "in.onnx", out=tmp_path / "result", recipe="@check-only", device="cpu")
    assert bare.exit_code == 1
    assert bare.error is not None
    assert bare.error.fix.startswith("add the step fix-quirks to the recipe")
    assert not (tmp_path / "result").exists()
    accepted = {"step.fix-quirks.skip": [f.facts["quirk"] for f in record.all_findings() if f.code == "DP641"]}
    assert api.prepare(tmp_path / "in.onnx", out=tmp_path / "result", device="cpu", settings=accepted).exit_code == 0


def test_a_quantized_cache_of_attention_is_refused_where_directml_did_not_run(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[1,1,64] q, float[1,1,32] k, float[1,1,32] v, int8[1,1,8,32] pk, int8[1,1,8,32] pv)
        => (float[1,1,64] y, int8[1,1,8,32] ok, int8[1,1,8,32] ov)
        <float[1] scale = {0.01}, int32[1,1] last = {7}, int32[1] total = {8}> {
        [a] y, ok, ov = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1,
            k_quant_type = "PER_TENSOR", v_quant_type = "PER_TENSOR", kv_cache_bit_width = 8>
            (q, k, v, pk, pv, last, total, , , , , , scale, scale)
    }"""
    onnx.save(parser.parse_model(text), tmp_path / "in.onnx")
    for recipe, code in (("@static-fp32", "DP641"), ("@check-only", "DP675")):
        record = api.prepare(tmp_path / "in.onnx", out=tmp_path / "result", recipe=recipe, device="cpu")
        assert (record.exit_code, record.error and record.error.code) == (1, code), record.error
        assert not (tmp_path / "result").exists()


@pytest.mark.parametrize(("recipe", "pins", "times"), [("@check-only", {}, 1), ("@static-fp32", {"batch": 1}, 2)])
def test_nodes_are_placed_anew_only_where_a_step_changed_them(
    recipe: str, pins: dict[str, int], times: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    whole = placing.place_facts

    def noted(graph: GraphFacts, target: Target, opset: int) -> Placement:
        asked.append(opset)
        return whole(graph, target, opset)

    monkeypatch.setattr(placing, "place_facts", noted)
    record = api.prepare(model, out=tmp_path / "result", recipe=recipe, pins=pins, device="cpu")
    assert record.exit_code == 0
    assert len(asked) == times
    assert record.facts.placement_before is not None
    assert record.facts.placement_after is not None
    assert record.facts.placement_before.nodes == record.facts.placement_after.nodes == 1
    tables = record.facts.nodes
    assert tables is not None
    assert (tables.before.names, tables.before.types) == (["Add(y)"], ["float[batch,4]"])
    assert (tables.after is None) == (times == 1)
    assert tables.after is None or tables.after.types == ["float[1,4]"]


def test_a_record_says_when_where_and_how(model: Path, tmp_path: Path, run: Run) -> None:
    done = run("prepare", model, "-o", tmp_path / "a b", "-r", "@check-only", "--device", "cpu")
    assert done.code == 0, done.err
    told = RunRecord.read(tmp_path / "a b" / "run.json").facts.origin
    assert told is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told.date)
    assert told.command_line.startswith("dmlprep prepare ")
    assert command_line("@check-only", "--device", "cpu") in told.command_line  # quoted as the system's shells need
    assert told.versions["dmlprep"]
    of_call = api.prepare(model, out=tmp_path / "c", recipe="@check-only", device="cpu").facts.origin
    assert of_call is not None
    assert of_call.command_line == ""


@pytest.mark.parametrize(
    ("options", "code", "words", "ribbons"),
    [
        (["--pin", "batch=1", "--device", "cpu"], 0, "not tried on DirectML", 2),
        (["--set", "step.pin.require_static=true", "--device", "cpu"], 1, "exit code 1", 1),
        (["--pin", "batch=1", "--require-dml"], 3, "exit code 3", 0),
    ],
)
def test_the_report_of_a_run(
    options: list[str], code: int, words: str, ribbons: int, model: Path, tmp_path: Path, run: Run
) -> None:
    """A model that a step refuses has been placed once; a device that is missing ends the run before that."""
    page, record = tmp_path / "run.html", tmp_path / "run.json"
    done = run("prepare", model, "-o", tmp_path / "out", *options, "--html", page, "--record", record)
    assert done.code == code, done.err
    text = page.read_text(encoding="utf-8")
    assert words in text
    assert text.count('class="ribbon"') == ribbons
    assert run("report", record, "--html", page, "--force").code == 0
    assert page.read_text(encoding="utf-8") == text


def test_a_report_is_of_one_model(model: Path, tmp_path: Path, run: Run) -> None:
    other = shutil.copy(model, tmp_path / "other.onnx")
    done = run("prepare", model, other, "-o", tmp_path / "out", "--html", tmp_path / "run.html")
    assert done.code == 2
    assert "--html needs a single model" in done.err


@pytest.mark.parametrize("option", ["--record", "--html", "--depfile"])
def test_other_outputs_are_checked_before_the_work(option: str, model: Path, tmp_path: Path, run: Run) -> None:
    done = run("prepare", model, "-o", tmp_path / "out", option, tmp_path / "none" / "file")
    assert done.code == 2
    assert "its folder does not exist" in done.err
    assert not (tmp_path / "out").exists()


def test_a_report_into_a_folder_that_is_not_there(model: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "run.json").write_bytes(RunRecord(command="prepare", input="m.onnx").to_json())
    done = run("report", tmp_path / "run.json", "--html", tmp_path / "none" / "run.html")
    assert done.code == 2
    assert "its folder does not exist" in done.err


@pytest.mark.skipif(sys.platform != "win32", reason="paths of Windows")
@pytest.mark.parametrize("name", ["AUX.onnx", "CON", "a?b", "dot.", "deep\\" * 60 + "m.onnx"])
def test_paths_that_windows_does_not_take(name: str, tmp_path: Path, run: Run) -> None:
    # The model does not exist: the output is looked at before it.
    done = run("prepare", tmp_path / "none.onnx", "-o", f"{tmp_path}\\{name}")
    assert done.code == 2
    assert "cannot be written" in done.err
    assert "no such file" not in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "win32", reason="paths of Windows")
def test_an_extended_path(model: Path, tmp_path: Path, run: Run) -> None:
    done = run("prepare", f"\\\\?\\{model}", "-o", f"\\\\?\\{tmp_path}\\out put", "-r", "@check-only")
    assert done.code == 0, done.err
    assert sorted(p.name for p in (tmp_path / "out put").iterdir()) == ["model.onnx", "run.json"]


# The second is beyond Windows' code page: what is proved of such a file is the matter of runtime/.
@pytest.mark.parametrize(
    ("name", "options"),
    [("modèle.onnx", ["--device", "cpu"]), ("модель.onnx", ["--device", "cpu", "--set", "parity.cpu=false"])],
)
def test_names_beyond_ascii_from_file_to_report(name: str, options: list[str], tmp_path: Path, run: Run) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 4] x) => (float[batch, 4] y) '
        "<float[4] b = {1, 2, 3, 4}> { y = Add(x, b) }"
    )
    model.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(numpy_helper.to_array(model.graph.initializer[0]), "重み")
    )
    model.graph.node[0].input[1] = "重み"
    model.graph.node[0].output[0] = model.graph.output[0].name = "вых"
    source, out = tmp_path / name, tmp_path / "出力"
    onnx.save(model, source, save_as_external_data=True, location="данные_重み.bin", size_threshold=0)
    assert run("check", source).code == 0
    done = run("prepare", source, "-o", out, "-r", "@check-only", *options)
    assert done.code == 0, done.err
    text = (out / "run.json").read_bytes().decode("utf-8")
    assert name in text
    assert "данные_重み.bin" in text
    assert run("report", out / "run.json", "--html", out / "отчёт.html").code == 0
    assert name in (out / "отчёт.html").read_text(encoding="utf-8")
    assert "вых" in onnx.load(out / "model.onnx").graph.output[0].name
    if len(options) == 2:
        assert "вых" in text
        assert run("compare", source, out / "model.onnx").code == 0
    onnx.checker.check_model(onnx.load(out / "model.onnx"))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot hold such a name")
def test_a_data_file_that_windows_cannot_hold(tmp_path: Path, run: Run) -> None:
    for name in ("external_cnn.onnx", "external_cnn.onnx.data"):
        shutil.copy(MODELS / name, tmp_path / name)
    model = onnx.load(tmp_path / "external_cnn.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "kernel:0"
    os.rename(tmp_path / "external_cnn.onnx.data", tmp_path / "kernel:0")
    onnx.save(model, tmp_path / "external_cnn.onnx")
    done = run("check", tmp_path / "external_cnn.onnx")
    assert "DP005" in done.out
    assert "which Windows does not allow" in done.out
    ready = run("prepare", tmp_path / "external_cnn.onnx", "-o", tmp_path / "out", "-r", "@check-only")
    assert ready.code == 0, ready.err
    assert "DP005" not in run("check", tmp_path / "out" / "model.onnx").out


class _Late(Observer):
    """Lets something happen while the result is saved, once."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def saving(self, done: int, total: int) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()


def test_of_runs_into_one_folder_the_first_wins_and_the_others_say_so(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"

    def first() -> None:
        assert api.prepare(model, out=out, recipe="@check-only", pins={}).exit_code == 0

    with pytest.raises(OutputError, match="the file exists") as refused:
        api.prepare(model, out=out, recipe="@static-fp32", pins={"batch": 1}, observer=_Late(first))
    assert refused.value.exit_code == 2
    assert "--force" in refused.value.fix
    assert json.loads((out / "run.json").read_bytes())["recipe"] == "@check-only"
    assert sorted(p.name for p in out.iterdir()) == ["model.onnx", "run.json"]


@pytest.mark.parametrize("name", _OLD)
def test_a_file_that_appears_meanwhile_stays(name: str, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"
    late = _Late(lambda: (out / name).write_text("mine"))
    with pytest.raises(OutputError, match="the file exists"):
        api.prepare(model, out=out, recipe="@static-fp32", pins={"batch": 1}, observer=late)
    assert _seen(out) == {name: "mine"}


@needs_links
def test_a_link_to_nothing_is_not_replaced(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"
    out.mkdir()
    (out / "model.onnx").symlink_to(tmp_path / "missing")
    with pytest.raises(OutputError, match="the file exists"):
        api.prepare(model, out=out, recipe="@static-fp32", pins={"batch": 1})
    assert (out / "model.onnx").is_symlink()
