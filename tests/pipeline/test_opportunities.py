"""Opportunities: each command is followed on a real model, and gains what was predicted."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import dmlprep
from dmlprep.record import RunRecord
from dmlprep.record.opportunities import Opportunity, by_gain, opportunity
from dmlprep.record.placement import PlacementFacts
from dmlprep.report.html import render_html
from tests.fixtures_index import fixture
from tests.in_process import Run

GELU = (
    '<ir_version: 10, opset_import: ["" : 20]> g (float[2,64] x) => (float[2,64] y) {'
    " [first] a = Relu (x) [gelu] b = Gelu (a) [last] y = Relu (b) }"
)
STAYS = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[8,2,2] x) => (float[8] y) {'
    " [first] a = Relu (x) [det] b = Det (a) [last] y = Relu (b) }"
)
HALVED = ("residual_cnn", "detector_nms", "bert_encoder", "diffusion_unet")


def _saved(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def _of(record: RunRecord, kind: str) -> Opportunity:
    (one,) = [one for one in record.facts.opportunities if one.kind == kind]
    return one


def _words(command: str) -> list[str]:
    """Return the words that the shell of this system makes of a command line."""
    if sys.platform == "win32":
        return [word.strip('"') for word in shlex.split(command, posix=False)]
    return shlex.split(command)


def _follow(one: Opportunity, run: Run, *more: str) -> None:
    done = run(*_words(one.command)[1:], "--device", "cpu", "-q", *more)
    assert done.code == 0, done.err + done.out


def _launches(placed: PlacementFacts) -> int:
    return placed.partitions + placed.dml_nodes - placed.fused_nodes


def _placed(path: Path) -> PlacementFacts:
    placed = dmlprep.check(path).facts.placement
    assert placed is not None
    return placed


def _saves(one: Opportunity, before: PlacementFacts, after: PlacementFacts) -> None:
    """Assert that the predicted launches, copies and bytes are those by which two placements differ."""
    assert one.launches == _launches(before) - _launches(after)
    assert one.copies == before.crossings - after.crossings
    assert one.copied_bytes == before.crossing_bytes - after.crossing_bytes
    assert one.nodes == before.compute_nodes_on_cpu - after.compute_nodes_on_cpu


def test_prepare_saves_the_copies_of_a_node_that_it_moves(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = _saved(tmp_path, GELU)
    before, one = _placed(path), _of(dmlprep.check(path), "prepare")
    assert (one.nodes, one.copies, one.copied_bytes) == (1, 2, 2 * 2 * 64 * 4)
    _follow(one, run)
    _saves(one, before, _placed(tmp_path / "out" / "model.onnx"))


@pytest.mark.parametrize("name", ["residual_cnn", "bert_encoder", "dynamo_decoder"])
def test_prepare_saves_the_launches_of_free_sizes(
    name: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = fixture(name).path
    before, one = _placed(path), _of(dmlprep.check(path), "prepare")
    assert one.launches > 10
    _follow(one, run)
    after = _placed(tmp_path / "out" / "model.onnx")
    assert one.launches == _launches(before) - _launches(after)


def test_copies_of_unknown_size_are_computed_with_the_example_sizes(tmp_path: Path) -> None:
    free = _of(dmlprep.check(_saved(tmp_path, GELU.replace("float[2,64]", "float[batch,64]"))), "prepare")
    assert "--pin batch=1" in free.command
    assert (free.copies, free.copied_bytes) == (2, 2 * 64 * 4)
    nms = _of(dmlprep.check(fixture("detector_nms").path), "copies")
    assert (nms.copies, nms.copied_bytes) == (3, 0)  # one copy has as many rows as there are detections


@pytest.mark.parametrize("name", HALVED)
def test_half_weights_save_what_was_predicted(name: str, tmp_path: Path) -> None:
    model = fixture(name)
    fast: dict[str, Any] = {"parity.cpu": False, "parity.dml": "off"}
    single = dmlprep.prepare(model.path, out=tmp_path / "single", pins=model.pins, settings=fast)
    one = _of(single, "fp16")
    recipe = _words(one.command)[-1].removeprefix("--recipe=")
    fast["step.fp16.islands"] = "off"
    half = dmlprep.prepare(model.path, out=tmp_path / "half", recipe=recipe, pins=model.pins, settings=fast)
    assert (single.exit_code, half.exit_code) == (0, 0), half.error
    saved = single.steps[-1].bytes_after - half.steps[-1].bytes_after
    assert 0.95 * one.file_bytes <= saved <= one.file_bytes  # the graph of detector_nms keeps small constants


def test_half_weights_of_some_size_halve_file_and_memory(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """<ir_version: 8, opset_import: ["" : 17]> g (int64[1,64] ids) => (float[1,64,512] y) {
        e = Gather (table, ids)  h = MatMul (e, w)  r = Relu (h)  y = MatMul (r, v)
    }"""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in (("table", (1000, 512)), ("w", (512, 512)), ("v", (512, 512))):
        tensor = (rng.standard_normal(shape) / 20).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(tensor, name))
    onnx.save(proto, tmp_path / "model.onnx")
    before = dmlprep.check("model.onnx")
    one = _of(before, "fp16")
    assert _words(one.command) == ["dmlprep", "prepare", "model.onnx", "-o", "out", "--recipe", "@transformer-fp16"]
    _follow(one, run)
    after = dmlprep.check("out/model.onnx")
    saved = Path("model.onnx").stat().st_size - Path("out/model.onnx").stat().st_size
    assert saved == pytest.approx(one.file_bytes, rel=0.01)
    memory = [record.facts.memory for record in (before, after)]
    assert memory[0] is not None
    assert memory[1] is not None
    assert memory[0].peak - memory[1].peak == pytest.approx(one.memory_bytes, rel=0.1)
    assert [one.kind for one in after.facts.opportunities] == []


def test_an_operator_that_stays_costs_its_copies(tmp_path: Path) -> None:
    record = dmlprep.check(path := _saved(tmp_path, STAYS))
    one = _of(record, "copies")
    assert _words(one.command) == ["dmlprep", "check", str(path), "--node", "det"]
    assert "-> the CPU" in dmlprep.explain_node(path, "det")
    before = _placed(path)
    after = _placed(_saved(tmp_path, STAYS.replace("Det", "ReduceMax <axes = [1, 2], keepdims = 0>")))
    assert one.copies == before.crossings - after.crossings == 2
    assert one.copied_bytes == before.crossing_bytes - after.crossing_bytes == 8 * (4 + 1) * 4


def test_prepare_names_the_operator_that_stays(tmp_path: Path) -> None:
    record = dmlprep.prepare(_saved(tmp_path, STAYS), out=tmp_path / "out", device="cpu")
    one = _of(record, "copies")
    assert (one.copies, one.copied_bytes) == (2, 8 * (4 + 1) * 4)
    assert _words(one.command)[2] == str(tmp_path / "out" / "model.onnx")


def test_half_inputs_and_outputs_halve_the_bytes_that_are_fed(tmp_path: Path, run: Run) -> None:
    model, out = fixture("residual_cnn"), tmp_path / "out"
    record = dmlprep.prepare(model.path, out=out, recipe=model.recipe, pins=model.pins, device="cpu")

    def fed() -> int:
        return int(json.loads(run("check", out / "model.onnx", "--format", "json").out)["summary"]["feed_bytes"])

    before, one = fed(), _of(record, "io")
    _follow(one, run)
    assert one.fed_bytes == before - fed() > 0


def test_sizes_that_stay_free_can_be_fixed(tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    record = dmlprep.prepare(fixture("residual_cnn").path, out=out, device="cpu")
    before, one = _placed(out / "model.onnx"), _of(record, "pin")
    _follow(one, run)
    assert one.launches == _launches(before) - _launches(_placed(out / "model.onnx")) > 10


def test_weights_that_no_node_reads_can_go(tmp_path: Path, run: Run) -> None:
    path, out = tmp_path / "model.onnx", tmp_path / "out"
    proto = onnx.parser.parse_model(GELU)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(5000, np.float32), "unread"))
    onnx.save(proto, path)
    one = _of(dmlprep.prepare(path, out=out, device="cpu"), "unread")
    size = (out / "model.onnx").stat().st_size
    _follow(one, run)
    assert one.file_bytes == 20_000
    assert size - (out / "model.onnx").stat().st_size == pytest.approx(one.file_bytes, rel=0.01)


def test_real_inputs_and_directml_make_the_proof_safer(tmp_path: Path, run: Run) -> None:
    path, out = _saved(tmp_path, GELU), tmp_path / "out"
    first = dmlprep.prepare(path, out=out, device="cpu")
    assert [one.kind for one in first.facts.opportunities] == ["feeds", "dml"]
    np.savez(tmp_path / "FOLDER.npz", x=np.ones((2, 64), np.float32))
    command = _of(first, "feeds").command.replace("FOLDER", str(tmp_path / "FOLDER.npz"))
    done = run(*_words(command)[1:], "--format", "json")
    assert done.code == 0, done.err
    assert [one["kind"] for one in json.loads(done.out)["facts"]["opportunities"]] == ["dml"]
    kit = _words(_of(first, "dml").command)[1:-1]
    assert run(*kit, tmp_path / "kit.zip").code == 0


@pytest.mark.parametrize("option", [["--project", "other/p.toml"], ["--no-project", "--target", "ort-1.24"], []])
def test_no_project_file_changes_a_suggested_command(
    option: list[str], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    shutil.copy(fixture("residual_cnn").path, "model.onnx")
    (tmp_path / "other/m.py").write_text("def own(reference, candidate):\n    return 0.0\n")
    fields = 'target = "ort-1.24"\nsettings = ["parity.seeds=1"]\nmetric_bound = 1\nmetric = '
    (tmp_path / "other/p.toml").write_text(f'{fields}"m.py:own"\n[models."../*.onnx"]\nrecipe = "@speech-fp16"')
    (tmp_path / "dmlprep.toml").write_text(f'{fields}"other/m.py:own"\nrecipe = "@speech-fp16"\npins = {{ batch = 2 }}')
    typed = ["--device", "cpu", "--force", *option]
    assert run("prepare", "model.onnx", "-o", "out", "-r", "@static-fp32", *typed).code == 0
    first = dmlprep.read_record("out")
    assert run(*_words(_of(first, "fp16").command)[1:]).code == 0
    again = dmlprep.read_record("out")
    assert again.target == first.target == "ort-1.24"
    assert again.options == {**first.options, "recipe": "@vision-fp16"}
    assert again.verdicts[0].metric == first.verdicts[0].metric
    assert first.verdicts[0].metric.endswith("m.py:own") == ("--target" not in option)
    plan = run("check", "model.onnx", "--plan", "--set", "parity.seeds=3", *option).out.splitlines()[-1]
    assert run(*_words(plan)[2:], "--device", "cpu", "--force").code == 0
    planned = dmlprep.read_record("out")
    assert (planned.target, planned.options["settings"]) == ("ort-1.24", {"parity.seeds": 3})


def test_a_model_that_is_ready_or_refused_has_no_opportunity(tmp_path: Path) -> None:
    ready = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    assert dmlprep.check(_saved(tmp_path, ready)).facts.opportunities == []
    assert dmlprep.check(fixture("quantized_cnn").path).facts.opportunities[0].kind == "prepare"
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[3,2] y) <int64[2] s = {3, 2}> {
        y = Reshape (x, s)
    }"""
    refused = dmlprep.prepare(_saved(tmp_path, text), out=tmp_path / "out", pins={"n": 2}, device="cpu")
    assert (refused.exit_code, refused.facts.opportunities) == (1, [])


def test_the_largest_gain_comes_first_and_a_loss_is_left_out() -> None:
    every = [
        opportunity("dml", "prove", "kit"),
        opportunity("unread", "remove", "a", file_bytes=10),
        opportunity("pin", "lose", "b", copies=1, copied_bytes=-(10**8)),
        opportunity("copies", "little", "c", copies=1),
        opportunity("prepare", "much", "d", launches=50, copied_bytes=10**7),
    ]
    assert [one.text for one in by_gain(every)] == ["much", "little", "remove", "prove"]


def test_check_prepare_and_report_show_them(tmp_path: Path, run: Run) -> None:
    path, out = fixture("residual_cnn").path, tmp_path / "out"
    shown = run("check", path).out.splitlines()
    assert shown[1] == "save 21 launches in each run: fuse 22 nodes into 1 graph, at example sizes"
    assert shown[2] == f"  dmlprep prepare {path} -o out --pin batch=1"
    brief = run("prepare", path, "-o", out, "--device", "cpu").out.splitlines()
    assert brief[1].startswith("save 21 launches in each run: fix the free sizes")
    assert "and 1 smaller gain" in brief
    full = run("prepare", path, "-o", out, "--device", "cpu", "--force", "-v").out
    assert f"safer: prove on a Windows machine with a GPU\n  dmlprep kit {out / 'model.onnx'} -o kit.zip" in full
    record = dmlprep.read_record(out)
    page = render_html(record)
    assert page.index("<h2>Opportunities</h2>") < page.index("fix the free sizes")
    assert "prove with real inputs" not in run("prepare", path, "-o", out, "--device", "cpu", "--force", "-q").out
