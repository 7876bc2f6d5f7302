"""``tune``: what is found is what ``prepare`` then gives, and what was not tried is said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlprep
from dmlprep import runtime
from dmlprep.core.errors import CheckNotRun, InputError, OutputError, RecipeError, UsageError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.tuning import choose, figures
from dmlprep.record import Verdict
from dmlprep.record.speed import ON_CPU, SOFTWARE, Bench, Ratio, Timed, Times
from dmlprep.record.tuning import PLACEMENT, TIME, Figures, Tuned
from dmlprep.runtime import DmlStatus, dml_status
from tests.changed import added, flip, names, touch
from tests.cli.test_stopping import start_command
from tests.fixtures_index import Fixture, fixture
from tests.in_process import Run
from tests.living import interrupted
from tests.pipeline.tuning.models import block
from tests.system import not_on_windows

CNN = fixture("residual_cnn")


def _prepared(found: Tuned, path: Path, out: Path, **options: Any) -> Figures:
    """The figures of what ``prepare`` makes by the recipe that was found."""
    recipe = out.with_suffix(".toml")
    recipe.write_text(found.recipe, encoding="utf-8")
    record = dmlprep.prepare(path, out=out, recipe=recipe, device="cpu", **options)
    assert record.exit_code == 0, record.error
    placed = record.facts.placement_after
    assert placed is not None
    made, _ = figures(Model.open(record.output), find_target(found.target))
    assert (placed.partitions, placed.crossings, placed.opset) == (made.partitions, made.crossings, made.opset)
    assert placed.nodes - placed.dml_nodes == made.cpu_nodes
    return made


@pytest.mark.parametrize(
    ("name", "recipe"),
    [("bert_encoder", "@transformer-fp16"), ("residual_cnn", "@vision-fp16"), ("quantized_cnn", "@vision-fp16")],
)
def test_the_search_starts_where_init_would(name: str, recipe: str) -> None:
    found = dmlprep.tune(fixture(name).path, offline=True, search_seconds=0)
    assert {one.name.partition(",")[0] for one in found.candidates} == {"@static-fp32", recipe}


def _figures(found: Tuned) -> Figures:
    """Of the candidate that was chosen."""
    made = next(one.figures for one in found.candidates if one.name == found.chosen)
    assert made is not None
    return made


def test_a_block_of_today_s_exporters_comes_to_one_partition_without_a_proof(tmp_path: Path) -> None:
    path = block(tmp_path)
    content = path.read_bytes()
    found = dmlprep.tune(path, pins={"batch": 1}, offline=True)
    assert found.before.cpu_compute == 4  # Conv-22, Gelu-20, and both Transpose-23
    assert found.before.crossings > 0
    made = _figures(found)
    assert (made.cpu_nodes, made.partitions, made.alone, made.crossings, made.fp16) == (0, 1, 0, 0, True)
    assert (found.exit_code, found.chosen_by, found.error) == (0, PLACEMENT, "")
    assert {one.proof for one in found.candidates} == {""}
    assert "not proved" in found.recipe
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["block.onnx"]


FOUND = [
    *(fixture(name) for name in ("residual_cnn", "opset22_cnn", "bert_encoder", "detector_nms", "dynamo_decoder")),
    *(fixture(name) for name in ("diffusion_unet", "local_functions", "if_branches", "late_overflow")),
]


_LONG = ("bert_encoder", "dynamo_decoder", "diffusion_unet", "local_functions", "if_branches", "opset22_cnn")


@pytest.mark.parametrize(
    "one", [pytest.param(one, id=one.name, marks=[pytest.mark.slow] * (one.name in _LONG)) for one in FOUND]
)
def test_prepare_gives_what_the_table_says(one: Fixture, tmp_path: Path) -> None:
    settings = {f"parity.sizes.{name}": size for name, size in one.free.items()}
    found = dmlprep.tune(one.path, pins=one.pins, device="cpu", settings=settings)
    assert found.exit_code == 0, found.error
    assert _prepared(found, one.path, tmp_path / "out") == _figures(found)
    names = [name for row in found.candidates for name in (row.name, *row.same)]
    assert len(names) == len(set(names))
    assert "@static-fp32" in names
    assert sum(name.startswith("@") and name.endswith("-fp16") for name in names) == 1
    ranks = [row.figures.rank for row in found.candidates if row.figures is not None]
    assert ranks == sorted(ranks)


def test_what_a_candidate_that_was_not_proved_is_foretold_to_be_is_so(tmp_path: Path) -> None:
    """No search for islands and no undone step here, so that all figures are exact."""
    path = block(tmp_path)
    found = dmlprep.tune(path, pins={"batch": 2}, offline=True, io="any", settings={"step.fp16.islands": "off"})
    assert any("FP16 inputs and outputs" in one.name for one in found.candidates)
    assert any("com.microsoft" in one.name for one in found.candidates)
    for number, one in enumerate(found.candidates):
        assert _prepared(replace(found, recipe=one.recipe), path, tmp_path / str(number)) == one.figures


def test_equal_results_are_one_row(tmp_path: Path) -> None:
    found = dmlprep.tune(CNN.path, pins=CNN.pins, offline=True)
    assert [one.name for one in found.candidates] == ["@vision-fp16", "@static-fp32"]
    assert "@vision-fp16, fused rotary" in found.candidates[0].same
    half = fixture("half_cnn")
    found = dmlprep.tune(half.path, pins=half.pins, offline=True)
    assert all(one.figures is None or one.figures.fp16 for one in found.candidates)


def test_a_candidate_that_fails_gives_way_to_the_next(tmp_path: Path) -> None:
    strict = {"parity.tolerance": "fp32-cpu", "step.fp16.islands": "off"}
    found = dmlprep.tune(CNN.path, pins=CNN.pins, device="cpu", settings=strict)
    assert (found.chosen, found.exit_code) == ("@static-fp32", 0)
    half = next(one for one in found.candidates if one.name == "@vision-fp16")
    assert half.proof == "failed"
    assert "parity on cpu failed" in half.reason
    assert "proved on: cpu" in found.recipe
    none = dmlprep.tune(CNN.path, pins=CNN.pins, device="cpu", top=1, settings=strict)
    assert (none.chosen, none.recipe, none.exit_code) == ("", "", 1)
    assert "no candidate passed: @vision-fp16" in none.error


def test_inputs_that_prove_nothing_are_no_proof(tmp_path: Path) -> None:
    feed = {"pixel_values": np.full((2, 3, 32, 32), np.nan, np.float32)}
    found = dmlprep.tune(CNN.path, pins=CNN.pins, device="cpu", feeds=[feed], top=2)
    assert (found.chosen, found.exit_code) == ("", 3)
    assert {one.proof for one in found.candidates} <= {"not-run", "not-proven"}


def test_a_model_that_no_recipe_takes(tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "own.onnx"
    text = """<ir_version: 8, opset_import: ["" : 17, "of.mine" : 1]> g (float[2] x) => (float[2] y) {
    y = of.mine.Own (x) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    found = dmlprep.tune(path, offline=True)
    assert (found.chosen, found.exit_code) == ("", 1)
    assert all(one.reason for one in found.candidates)


def test_what_a_recipe_says_itself_stays(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'doc = "Mine"\n[step.first]\nuse = "opset"\nversion = 18\n[step.fuse]\nrotary = false\n', encoding="utf-8"
    )
    found = dmlprep.tune(block(tmp_path), recipes=[recipe], offline=True)
    for one in found.candidates:
        assert one.figures is not None
        assert one.figures.opset == 18
        assert "rotary = true" not in one.recipe
    assert found.free == ("batch",)
    with pytest.raises(RecipeError, match="no step 'fp16'"):
        dmlprep.tune(CNN.path, recipes=["@static-fp32"], settings={"step.fp16.keep_io": False}, offline=True)
    with pytest.raises(RecipeError, match="no step 'pin'"):
        dmlprep.tune(CNN.path, recipes=[recipe], pins={"batch": 1}, offline=True)
    with pytest.raises(UsageError, match="no recipe"):
        dmlprep.tune(CNN.path, recipes=[])
    other = tmp_path / "other.toml"
    other.write_text('doc = "Other"\ntarget = "ort-1.20"\n[step.opset]\n', encoding="utf-8")
    with pytest.raises(UsageError, match="one target"):
        dmlprep.tune(CNN.path, recipes=[recipe, other], offline=True)


def test_a_frame_stays_the_last_step(tmp_path: Path) -> None:
    recipe = tmp_path / "framed.toml"
    recipe.write_text('doc = "Framed"\n[step.pin]\n[step.opset]\n[step.frame]\n', encoding="utf-8")
    tuned = dmlprep.tune(block(tmp_path), recipes=[recipe], pins={"batch": 1}, offline=True)
    assert tuned.exit_code == 0
    assert any("fused" in name for one in tuned.candidates for name in (one.name, *one.same))


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    found = dmlprep.tune(block(tmp_path), pins={"batch": 1}, offline=True, search_seconds=0)
    said = "\n".join(found.left_out)
    assert {one.name for one in found.candidates} == {"@static-fp32", "@vision-fp16"}  # these always are
    assert "0 seconds had passed (--search-seconds)" in said
    assert "--io any tries them" in said
    assert "--only-directml tries it" in said
    whole = dmlprep.tune(block(tmp_path), pins={"batch": 1}, offline=True, io="half", only_directml=True)
    assert not any("--io" in text or "GroupNorm" in text for text in whole.left_out)
    assert any(text.startswith("opset ") for text in whole.left_out)
    assert all("FP16 inputs and outputs" in one.name for one in whole.candidates[:1])


@pytest.mark.slow
def test_group_norm_is_fused_where_only_directml_need_run_it() -> None:
    unet = fixture("diffusion_unet")
    found = dmlprep.tune(unet.path, pins=unet.pins, offline=True, only_directml=True, recipes=["@diffusion-fp16"])
    names = [name for one in found.candidates for name in (one.name, *one.same)]
    assert any("group-norm" in name for name in names)


@pytest.mark.slow
def test_times_that_are_no_measure_of_a_gpu_choose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dmlprep.tune(CNN.path, pins=CNN.pins, device="cpu", bench=True, bench_seconds=0.2)
    assert (found.chosen, found.chosen_by) == ("@vision-fp16", PLACEMENT)
    assert found.bench is not None
    assert found.bench.note == ON_CPU
    assert [one.name for one in found.bench.models] == ["input", "@vision-fp16", "@static-fp32"]
    assert [one.proof for one in found.candidates] == ["passed", "passed"]
    assert all(one.time is not None and one.time.to == "input" for one in found.candidates)

    def gone(*_: object, **__: object) -> Bench:
        raise CheckNotRun("the device is gone")

    monkeypatch.setattr("dmlprep.pipeline.tuning.proving.measure", gone)
    found = dmlprep.tune(CNN.path, pins=CNN.pins, device="cpu", bench=True)
    assert (found.exit_code, found.chosen) == (0, "@vision-fp16")
    assert found.bench is not None
    assert "the device is gone" in found.bench.note


def _timed(name: str, seconds: float) -> Timed:
    ratio = Ratio("input", seconds / 3, seconds / 3 - 0.01, seconds / 3 + 0.01, 9)
    return Timed(name, "", times=Times(9, seconds, seconds, seconds, 1 / seconds), ratio=ratio)


@pytest.mark.parametrize(("note", "chosen", "by"), [("", "@static-fp32", TIME), (SOFTWARE, "@vision-fp16", PLACEMENT)])
def test_times_of_a_gpu_choose(note: str, chosen: str, by: str) -> None:
    found = dmlprep.tune(CNN.path, pins=CNN.pins, offline=True)
    passed = tuple(replace(one, proof="passed") for one in found.candidates)
    rows = (_timed("input", 3.0), _timed("@vision-fp16", 2.0), _timed("@static-fp32", 1.0))
    made = choose(replace(found, candidates=passed, bench=Bench("gpu", rows, note=note)), proved=True)
    assert (made.chosen, made.chosen_by) == (chosen, by)
    assert f"{chosen}, by {by}" in made.recipe
    failed = (passed[0], replace(passed[1], proof="failed", reason="wrong"))
    assert choose(replace(made, candidates=failed), proved=True).chosen == "@vision-fp16"


def test_directml_that_is_demanded_and_cannot_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "dml_status", lambda **_: DmlStatus(False, "no adapter"))
    with pytest.raises(CheckNotRun, match="no adapter"):
        dmlprep.tune(CNN.path, pins=CNN.pins, require_dml=True)
    with pytest.raises(UsageError):
        dmlprep.tune(CNN.path, require_dml=True, device="cpu")


class _Meanwhile(Observer):
    """Something that happens once, when candidates are ranked, proved, or after the first one."""

    def __init__(self, at: str, act: Callable[[], Any]) -> None:
        self.at, self.act = at, act

    def _now(self, at: str) -> None:
        if at == self.at:
            self.at = ""
            self.act()

    def ranked(self, count: int, seconds: float) -> None:
        self._now("ranked")

    def check_finished(self, verdict: Verdict) -> None:
        self._now("proved")

    def notice(self, text: str) -> None:
        self._now(text.partition(":")[0])


@pytest.mark.parametrize(
    ("at", "change", "options"),
    [
        ("ranked", touch, {"offline": True}),
        ("proved", flip, {"device": "cpu"}),
        ("candidate 2", touch, {"device": "cpu", "kit": "kit.zip", "top": 2}),
    ],
)
@pytest.mark.parametrize("name", ["in.onnx", "in.data"])
def test_a_model_that_is_changed(
    name: str, at: str, change: Callable[[Path], None], options: dict[str, Any], tmp_path: Path
) -> None:
    """Neither a recipe nor a kit appears."""
    model = added(tmp_path / "in.onnx")
    if "kit" in options:
        options = {**options, "kit": tmp_path / options["kit"]}
    meanwhile = _Meanwhile(at, lambda: change(tmp_path / name))
    with pytest.raises(InputError) as refused:
        dmlprep.tune(model, pins={"batch": 2}, out=tmp_path / "tuned.toml", observer=meanwhile, **options)
    assert meanwhile.at == ""
    assert (refused.value.code, refused.value.exit_code) == ("DP015", 2)
    assert refused.value.where == str(tmp_path / name)
    assert names(tmp_path) == ["in.data", "in.onnx"]


def test_the_command(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "tuned.toml"
    done = run("tune", CNN.path, "--pin", "batch=2", "--device", "cpu", "-o", out)
    assert done.code == 0, done.err
    assert "> @vision-fp16" in done.out
    assert "not tried: " in done.out
    assert "proved (cpu, fp16 emulation), the best by placement" in done.out
    assert f"wrote {out}" in done.out
    assert "candidate 1: @vision-fp16" in done.err
    assert run("explain", out).code == 0
    assert run("prepare", CNN.path, "-o", tmp_path / "out", "-r", out, "--device", "cpu").code == 0
    again = run("tune", CNN.path, "-o", out)
    assert again.code == 2
    assert "the file exists" in again.err
    done = run("tune", CNN.path, "--pin", "batch=2", "--offline", "--format", "json", "-q")
    said = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert said["chosen"] == "@vision-fp16"
    assert said["candidates"][0]["figures"]["partitions"] == 1
    done = run("tune", CNN.path, "--offline", "-q")
    assert "free sizes: batch" in done.out
    assert "[step.opset]" in done.out  # the recipe itself, where it is not written
    with pytest.raises(OutputError):
        dmlprep.tune(CNN.path, out=out, offline=True)


@not_on_windows("signals are sent otherwise")
def test_it_stops(tmp_path: Path) -> None:
    """While it proves: its candidates go with it, and no recipe is written."""
    out = tmp_path / "tuned.toml"
    words = ["-m", "dmlprep", "tune", str(CNN.path), "--pin", "batch=2", "--device", "cpu", "-o", str(out), "-q"]
    process = start_command([*words, "--bench", "--bench-seconds", "600"], tmp_path)
    end = time.monotonic() + 60
    while not list((tmp_path / "tmp").glob("*/tune-*")) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    assert "Traceback" not in interrupted(process)
    assert not out.exists()
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.dml
def test_on_directml(tmp_path: Path) -> None:
    if not (status := dml_status()).available:
        pytest.skip(f"DirectML tests NOT RUN: {status.reason}")
    found = dmlprep.tune(block(tmp_path), pins={"batch": 1}, device="dml", bench=True, bench_seconds=0.2, top=2)
    assert found.exit_code == 0, found.error
    assert found.bench is not None
    assert any(device.startswith("dml on ") for one in found.candidates for device in one.devices)
    if any(name in found.bench.device for name in ("lavapipe", "llvmpipe")):
        assert (found.bench.note, found.chosen_by) == (SOFTWARE, PLACEMENT)
