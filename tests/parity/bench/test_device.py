"""Bounds of times by the speed of a device, compared with numbers that were computed by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import onnx
import onnx.parser
import pytest

import dmlprep
from dmlprep.core.errors import CheckNotRun
from dmlprep.directml.vram.work import Work
from dmlprep.parity.bench import device, measuring
from dmlprep.parity.bench.device import bound, device_speed, measure_speed
from dmlprep.record import DeviceInfo, RunRecord
from dmlprep.record.speed import Bench, DeviceSpeed, PartBound, Timed, Times
from dmlprep.report.speed import scaled
from dmlprep.runtime import SessionOptions, cpu_host, dml_status
from tests.fixtures_index import fixture

SPEED = DeviceSpeed(
    memory_fp32=1e9,
    memory_fp16=0.5e9,
    arithmetic_fp32=1e12,
    arithmetic_fp16=4e12,
    launch_seconds=1e-4,
    copy_seconds=5e-5,
    measured="2026-11-28",
)
GPU = DeviceInfo("dml on windows: A GPU", ["driver 1.2", "DirectML 1.15.4"], "dml", driver="1.2")


def _timed(median: float, on_device: float | None = None) -> Timed:
    def times(seconds: float) -> Times:
        return Times(9, seconds, seconds, seconds, 1 / seconds)

    return Timed("m", "m.onnx", times=times(median), on_device=None if on_device is None else times(on_device))


def test_each_part_takes_the_longer_of_arithmetic_and_memory() -> None:
    works = [
        Work("a", 3, True, 4_000_000_000, 1_000_000_000, 100_000),  # 1 ms and 1 ms of arithmetic; 0.1 ms of memory
        Work("b", 1, False, 0, 1_000_000, 500_000),  # 0.5 ms of memory
        Work("c", 2, True, 0, 0, 200_000, unknown=1),  # 0.2 ms of memory
    ]
    answer = bound(works, SPEED, _timed(9e-3, 5.6e-3))
    assert answer is not None
    assert answer.seconds == pytest.approx(1e-4 + 2e-3 + 5e-4 + 2e-4)
    assert (answer.flops, answer.nbytes, answer.limit, answer.unknown) == (5_001_000_000, 800_000, "arithmetic", 1)
    assert answer.share == pytest.approx(2.8e-3 / 5.6e-3)
    assert [(part.name, part.nodes, part.flops, part.nbytes) for part in answer.parts] == [
        ("a", 3, 5_000_000_000, 100_000),
        ("c", 2, 0, 200_000),
    ]
    assert [part.seconds for part in answer.parts] == pytest.approx([2e-3, 2e-4])


def test_runs_with_copies_are_compared_with_copies() -> None:
    answer = bound([Work("b", 1, False, 0, 0, 850_000)], SPEED, _timed(2e-3))
    assert answer is not None
    assert (answer.seconds, answer.share) == pytest.approx((9.5e-4, 1e-3 / 2e-3))
    assert answer.limit == "memory"
    empty = bound([Work("b", 1, False, 0, 0, 0)], SPEED, _timed(2e-4, 2e-4))
    assert empty is not None
    assert (empty.limit, empty.seconds, empty.share) == ("launch", 1e-4, 0.5)
    assert bound([], SPEED, _timed(2e-4)) is None
    assert bound([Work("b", 1, False, 0, 0, 9)], SPEED, Timed("m", "m.onnx", not_run="no")) is None


def test_a_device_is_measured_once(tmp_path: Path) -> None:
    calls: list[DeviceSpeed | None] = []

    def measure(speed: DeviceSpeed | None = SPEED) -> DeviceSpeed | None:
        calls.append(speed)
        return speed

    folder = tmp_path / "devices"
    assert device_speed(GPU, lambda: measure(None), folder) is None
    assert [device_speed(GPU, measure, folder) for _ in range(3)] == [SPEED] * 3
    assert len(calls) == 2
    device_speed(replace_driver("1.3"), measure, folder)
    assert (len(calls), len(list(folder.iterdir()))) == (3, 2)
    wrong = ({"memory_fp32": 0}, {"arithmetic_fp16": 5e-324}, {"launch_seconds": -1.0}, {"copy_seconds": -1e308})
    for content in (b"{", b'{"memory_fp32": 1}', *(json.dumps({**vars(SPEED), **one}).encode() for one in wrong)):
        for file in folder.iterdir():
            file.write_bytes(content)
        assert device_speed(GPU, measure, folder) == SPEED
    assert len(calls) == 9
    (tmp_path / "file").touch()
    assert device_speed(GPU, measure, tmp_path / "file") == SPEED  # a cache that cannot be written


def replace_driver(version: str) -> DeviceInfo:
    return DeviceInfo(GPU.name, [f"driver {version}", "DirectML 1.15.4"], "dml", driver=version)


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,8] y) <float[4,8] w = {WEIGHTS}>
{ a = MatMul (x, w)  y = Relu (a) }"""


def _as_gpu(monkeypatch: pytest.MonkeyPatch, speed: DeviceSpeed | None) -> None:
    """Let the CPU provider run the sessions of DirectML, and not count as a software device."""
    monkeypatch.setattr(measuring, "dml_host", lambda session: cpu_host())
    monkeypatch.setattr(measuring, "device_speed", lambda info, measure: speed)


def test_bounds_in_text_json_and_html(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(_MODEL.replace("WEIGHTS", ",".join(["1"] * 32))), path)
    _as_gpu(monkeypatch, SPEED)
    free, fixed = (
        dmlprep.bench(path, device="dml", sizes={"n": 10}, seconds=0),
        dmlprep.bench(path, device="dml", pins={"n": 10}, seconds=0),
    )
    moved = 4 * (40 + 32 + 80)
    for one in (free, fixed):
        answer = one.models[0].bound
        assert answer is not None
        assert (answer.flops, answer.nbytes) == (2 * 10 * 4 * 8 + 80, moved)
        assert answer.seconds == pytest.approx(1e-4 + moved / 1e9, rel=0.02)
    assert free.models[0].partitions == 0
    assert fixed.models[0].bound.parts == (PartBound("MatMul(a)", 2, 720, 608, 608 / 1e9),)  # type: ignore[union-attr]
    text, page = dmlprep.render_record(fixed), dmlprep.render_record(fixed, "html")
    for shown in (text, page):
        assert "lower bound" in shown
        assert "device: memory 1 GB/s, FP32 1 TFLOP/s, FP16 4 TFLOP/s, launch 100 us" in shown
    record = RunRecord.from_json(dmlprep.render_record(fixed, "json"))
    assert record.facts.bench == fixed
    assert json.loads(dmlprep.render_record(fixed, "json"))["facts"]["bench"]["models"][0]["bound"]["flops"] == 720


def test_several_fused_graphs_have_a_row_each() -> None:
    parts = [Work(f"part{number}", 2, True, 0, 0, 1000 * number) for number in range(9)]
    row = _timed(1.0)
    one = replace(row, bound=bound(parts, SPEED, row))
    text = dmlprep.render_record(Bench("gpu", (one,), device_speed=SPEED))
    assert "unknown shape" not in text
    assert "m: part8" in text
    assert "m: part4" in text
    assert "m: part3" not in text
    assert "m: part8" in dmlprep.render_record(Bench("gpu", (one,), device_speed=SPEED), "html")


def test_nodes_of_unknown_shapes_are_named() -> None:
    row = _timed(1.0)
    one = replace(row, bound=bound([Work("a", 2, False, 0, 0, 1000, unknown=2)], SPEED, row))
    for form in ("text", "html"):
        text = dmlprep.render_record(Bench("gpu", (one,), device_speed=SPEED), form)  # type: ignore[arg-type]
        assert "m: the lower bound leaves out 2 nodes of unknown shape" in text


def test_nothing_of_it_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(measuring, "device_speed", refuse)
    bench = dmlprep.bench(fixture("residual_cnn").path, pins={"batch": 1}, seconds=0, runs=1)
    assert bench.device_speed is bench.models[0].bound is None
    for form in ("text", "html"):
        assert "lower bound" not in dmlprep.render_record(bench, form)  # type: ignore[arg-type]


def test_a_device_that_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(**_: object) -> NoReturn:
        raise CheckNotRun("it went away")

    monkeypatch.setattr(device, "dml_host", gone)
    assert measure_speed(SessionOptions()) is None
    _as_gpu(monkeypatch, None)
    bench = dmlprep.bench(fixture("residual_cnn").path, device="dml", pins={"batch": 1}, seconds=0, runs=1)
    assert bench.models[0].times is not None
    assert bench.device_speed is bench.models[0].bound is None


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 "), (999, "999 "), (999.6, "1 k"), (12_345, "12.3 k"), (8.21e9, "8.21 G"), (4.8e12, "4.8 T")],
)
def test_scaled_numbers(number: float, text: str) -> None:
    assert scaled(number) == text


@pytest.mark.dml
def test_on_directml(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tensors so small that a CPU computes them too."""
    if not (status := dml_status()).available:
        pytest.skip(f"DirectML tests NOT RUN: {status.reason}")
    for name, size in (("ELEMENTS", 1 << 12), ("SIDE", 32), ("CHANNELS", 4), ("PIXELS", 8)):
        monkeypatch.setattr(device, name, size)
    speed = measure_speed(SessionOptions())
    assert speed is not None
    assert min(speed.memory_fp32, speed.memory_fp16, speed.arithmetic_fp32, speed.arithmetic_fp16) > 0
    assert 0 < speed.launch_seconds < 10
    assert speed.copy_seconds >= 0
