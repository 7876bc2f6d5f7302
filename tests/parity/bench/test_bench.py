"""Models timed side by side, in real workers. What a run takes is never judged here."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnx.parser
import pytest

import dmlprep
from dmlprep.core.errors import CheckNotRun, InputError, UsageError
from dmlprep.graph.model import Model
from dmlprep.parity.bench.measuring import Variant, overridden, overridden_like, overrides
from dmlprep.parity.candidate import software_device
from dmlprep.record import DeviceInfo, RunRecord
from dmlprep.record.run_record import RunFacts
from dmlprep.record.speed import SOFTWARE, Bench, Timed
from dmlprep.runtime import dml_status, windows
from dmlprep.runtime.linux import host
from tests.changed import Once, added, names, touch
from tests.cli.test_stopping import start_command
from tests.endless import endless
from tests.fixtures_index import fixture
from tests.in_process import Run
from tests.living import interrupted
from tests.system import not_on_windows

CNN = fixture("residual_cnn").path


def ran(one: Timed) -> None:
    """All that is known of a model that ran on the CPU."""
    assert one.not_run == ""
    assert one.times is not None
    assert one.times.runs >= 10
    assert 0 < one.times.p10 <= one.times.median <= one.times.p90
    assert one.load_seconds is not None
    assert one.load_seconds > 0
    assert one.first_seconds is not None
    assert one.first_seconds > 0
    assert one.peak_memory is not None
    assert one.idle_memory is not None
    assert one.peak_memory >= one.idle_memory > 1 << 20


def test_one_model_twice() -> None:
    found = dmlprep.bench(CNN, CNN, seconds=0.3)
    assert [one.name for one in found.models] == [CNN.name, f"{CNN.name} (2)"]
    for one in found.models:
        ran(one)
        assert (one.nodes, one.cpu_nodes, one.partitions) == (17, 17, None)
        assert one.on_device is one.copying_seconds is None
    first, second = found.models
    assert first.ratio is None
    assert second.ratio is not None
    assert second.ratio.to == first.name
    assert second.ratio.value > 0
    assert second.least_disturbed is not None
    assert (found.inputs, found.note, found.exit_code) == ("seeded", "", 0)
    assert found.device.startswith("cpu, ONNX Runtime ")
    assert found.rounds >= 1


@pytest.mark.parametrize("name", ["a.onnx", "a.data", "b.onnx", "b.data"])
def test_a_model_that_is_changed_while_it_is_timed(tmp_path: Path, name: str) -> None:
    models = [added(tmp_path / "a.onnx"), added(tmp_path / "b.onnx")]
    meanwhile = Once(lambda: touch(tmp_path / name), "round")
    with pytest.raises(InputError) as refused:
        dmlprep.bench(*models, sizes={"batch": 2}, seconds=0.05, runs=1, progress=meanwhile)
    assert (refused.value.code, refused.value.exit_code) == ("DP015", 2)
    assert refused.value.where == str(tmp_path / name)
    assert names(tmp_path) == ["a.data", "a.onnx", "b.data", "b.onnx"]


def test_what_does_not_run_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    broken = tmp_path / "unknown.onnx"
    text = """<ir_version: 8, opset_import: ["" : 17, "of.mine" : 1]>
    g (float[N,3,32,32] pixel_values) => (float[N,3,32,32] y) { y = of.mine.Own (pixel_values) }"""
    onnx.save(onnx.parser.parse_model(text), broken)
    found = dmlprep.bench(broken, CNN, CNN, seconds=0.1)
    refused, first, second = found.models
    assert "Own" in refused.not_run
    assert refused.times is refused.ratio is refused.load_seconds is None
    ran(first)
    assert first.ratio is None
    assert second.ratio is not None
    assert second.ratio.to == first.name
    assert found.exit_code == 3
    text = dmlprep.render_record(found)
    assert "unknown.onnx did not run: " in text
    assert "<svg" in dmlprep.render_record(found, "html")


def test_a_feed_that_the_model_cannot_take_is_no_time(tmp_path: Path) -> None:
    """It loads, and its Reshape fails at any run."""
    bad = tmp_path / "bad.onnx"
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[4] x) => (float[M] y) <int64[1] s = {5}> { y = Reshape (x, s) }"""
    onnx.save(onnx.parser.parse_model(text), bad)
    (one,) = dmlprep.bench(bad, seconds=0).models
    assert "Reshape" in one.not_run
    assert one.times is one.first_seconds is None
    other = dmlprep.bench(CNN, bad, seconds=0, runs=1).models[1]
    assert "input 'x' has no value" in other.not_run


def test_sizes_and_feeds(tmp_path: Path) -> None:
    (one,) = dmlprep.bench(CNN, pins={"batch": 3}, seconds=0, runs=1).models
    assert one.sizes == {"batch": 3}
    assert one.times is not None
    assert one.times.runs >= 1
    name = Model.open(CNN).ir.graph.inputs[0].name
    given = {name: np.zeros((2, 3, 32, 32), np.float32)}
    found = dmlprep.bench(CNN, feeds=[given], seconds=0)
    assert (found.inputs, found.models[0].sizes) == ("given", {})
    (one,) = dmlprep.bench(CNN, pins={"batch": 3}, feeds=[given], seconds=0).models
    assert one.not_run != ""  # the session was told 3
    with pytest.raises(InputError, match="no input has a dimension"):
        dmlprep.bench(CNN, pins={"none": 3})
    with pytest.raises(UsageError, match="no model"):
        dmlprep.bench()
    with pytest.raises(InputError):
        dmlprep.bench(tmp_path / "nothing.onnx")


def test_a_model_beside_what_was_made_of_it(tmp_path: Path) -> None:
    """The result has fixed sizes, FP16 inputs and other files: both get the same numbers."""
    record = dmlprep.prepare(
        CNN, out=tmp_path / "out", recipe="@vision-fp16", pins={"batch": 2}, device="cpu", bench=True, bench_seconds=0.2
    )
    assert record.exit_code == 0
    read = RunRecord.read(tmp_path / "out" / "run.json")
    for found in (record.facts.bench, read.facts.bench):
        assert found is not None
        assert [one.name for one in found.models] == ["input", "input, sizes overridden", "result"]
        assert [one.not_run for one in found.models] == ["", "", ""]
        assert found.models[1].sizes == {"batch": 2}
        assert found.models[2].path == str(tmp_path / "out" / "model.onnx")
    text = dmlprep.render_record(read)
    assert "input, sizes overridden" in text
    assert SOFTWARE not in text  # the CPU provider is what it says it is
    found = dmlprep.bench(CNN, tmp_path / "out" / "model.onnx", seconds=0.1)
    for one in found.models:
        ran(one)


def test_what_a_session_can_override() -> None:
    model = Model.open(CNN)
    name = model.ir.graph.inputs[0].name
    assert overrides(model, {"batch": 4}) == overrides(model, {f"{name}:0": 4}) == {"batch": 4}
    assert overrides(model, {"other": 4, f"{name}:2": 9}) == {}
    pinned = overridden(Variant("x", model, CNN, {"batch": 4}))
    assert [int(dim) for dim in pinned.ir.graph.inputs[0].shape or ()] == [4, 3, 32, 32]
    assert model.ir.graph.inputs[0].shape is not None
    assert not isinstance(model.ir.graph.inputs[0].shape[0], int)
    assert overridden_like(model, pinned, CNN, "").sizes == {"batch": 4}
    assert "sizes are still free" in overridden_like(model, model, CNN, "").why_not
    assert "already fixed" in overridden_like(pinned, pinned, CNN, "").why_not
    anonymous = Model.open(fixture("mlp_anonymous").path)
    assert "no names" in overridden_like(anonymous, anonymous, CNN, "").why_not


def test_the_command(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "bench.html"
    done = run("bench", CNN, CNN, "--seconds", "0.1", "--html", page, "-v")
    assert done.code == 0
    assert "median" in done.out
    assert "nodes on the CPU" in done.out
    assert "of p10, to residual_cnn.onnx" in done.out
    shown = page.read_text(encoding="utf-8")
    assert "<svg" in shown
    assert re.search(r"(fast as|slower than|time of|compared with) residual_cnn.onnx", shown.partition("<h2>")[0])
    assert all(f"<dt>{fact}</dt>" in shown for fact in ("date", "command", "machine"))
    assert shown.count('<th class="n">ratio') == 2
    brief = run("bench", CNN, CNN, "--seconds", "0").out.splitlines()
    assert brief[0].startswith("residual_cnn.onnx (2) is ")
    assert [len(line.split()) for line in brief if line.startswith("residual_cnn.onnx ")][1:] == [7, 8]
    assert brief[-1] == "details: -v, or the report (--html FILE)"
    assert run("bench", CNN, "--seconds", "0", "--html", page).code == 2  # it is there
    done = run("bench", CNN, "--seconds", "0", "--format", "json", "-q")
    assert done.code == 0
    said = json.loads(done.out)
    assert said["models"][0]["times"]["runs"] >= 10
    assert said["note"] == ""


def test_no_directml_here(run: Run) -> None:
    """``run`` has none; on Windows there may be one."""
    done = run("bench", CNN, "--device", "dml", "--seconds", "0", "--runs", "1")
    if done.code:
        assert done.code == 3
        assert "DP80" in done.err
        assert done.out == ""


def test_a_model_that_never_ends_is_given_up(tmp_path: Path) -> None:
    (one,) = dmlprep.bench(endless(tmp_path / "endless.onnx"), seconds=0, time_limit=1.5).models
    assert "did not answer within 1.5 s" in one.not_run


@not_on_windows("signals are sent otherwise")
def test_it_stops(tmp_path: Path) -> None:
    process = start_command(["-m", "dmlprep", "bench", str(CNN), str(CNN), "--seconds", "600", "-q"], tmp_path)
    end = time.monotonic() + 60
    while len(list((tmp_path / "tmp").glob("*/session-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)
    assert "Traceback" not in interrupted(process)
    assert not list((tmp_path / "tmp").iterdir())


def test_a_chart_of_a_strangers_record_stays_in_its_frame() -> None:
    times = {"runs": 1, "median": 1e308, "p10": -5.0, "p90": 1e300, "per_second": 0.0}
    models = [{"name": "<b>x", "path": "x", "times": times}, {"name": "y", "path": "y"}]
    record = RunRecord(
        "bench", "x", facts=RunFacts(bench=msgspec.convert({"device": "<i>", "models": models, "note": "n"}, Bench))
    )
    record = RunRecord.from_json(record.to_json())
    page = dmlprep.render_record(record, "html")
    assert 'width="100.00"' in page
    assert "<b>x" not in page
    assert "<i>" not in page
    assert "no times" in page
    assert "<b>x" in dmlprep.render_record(record)


def test_times_of_a_software_device_are_marked_everywhere() -> None:
    found = Bench("dml on linux: lavapipe", (Timed("a", "a", not_run="no"),), note=SOFTWARE)
    assert SOFTWARE in dmlprep.render_record(found)
    assert SOFTWARE in dmlprep.render_record(found, "html")
    assert SOFTWARE in dmlprep.render_record(found, "json")


@pytest.mark.parametrize(
    ("device", "software"),
    [
        (windows.describe({"adapter": "NVIDIA GeForce RTX 4090"}), False),
        (windows.describe({"adapter": "llvmpipe (LLVM 19.1.7, 256 bits)"}), True),
        (windows.describe({"adapter": "Microsoft Basic Render Driver", "adapter kind": "software"}), True),
        (host.describe({"adapter": "llvmpipe (LLVM 19.1.7, 256 bits)"}), True),
    ],
)
def test_which_devices_are_software(device: DeviceInfo, software: bool) -> None:
    assert software_device("dml", device) is software


@pytest.mark.dml
def test_on_directml() -> None:
    if not (status := dml_status()).available:
        pytest.skip(f"DirectML tests NOT RUN: {status.reason}")
    found = dmlprep.bench(CNN, CNN, device="dml", pins={"batch": 1}, seconds=0)
    for one in found.models:
        ran(one)
        assert one.on_device is not None or one.not_apart
        assert (one.on_device is None) == (one.copying_seconds is None)
        assert one.cpu_nodes == 0
        assert one.partitions == 1
    assert (found.note == SOFTWARE) == any(name in found.device for name in ("lavapipe", "llvmpipe"))


def test_prepare_tells_why_directml_was_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that goes away between the proof and the measurement refuses nothing."""

    def gone(*_: object, **__: object) -> object:
        raise CheckNotRun("the device is gone")

    monkeypatch.setattr("dmlprep.pipeline.timing.measure", gone)
    record = dmlprep.prepare(CNN, out=tmp_path / "out", pins={"batch": 1}, device="cpu", bench=True)
    assert record.exit_code == 0
    assert record.facts.bench is not None
    assert all("the device is gone" in one.not_run for one in record.facts.bench.models)
