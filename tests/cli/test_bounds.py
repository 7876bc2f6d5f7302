"""Numbers on the command line and in recipes: each has a smallest and a largest, and is finite."""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import dmlprep
from dmlprep.cli.main import cli
from dmlprep.cli.values import LIMITS
from dmlprep.core.errors import UsageError
from dmlprep.process.onnx_worker.door import Limits, limited
from tests.in_process import Run
from tests.parity.models import parse

TEXT = "g (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }"
HUGE = "100000000000000000000"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return parse(TEXT, tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "option",
    [
        *(("compare", "--seeds", value) for value in (HUGE, "0", "-1", "nan", "9" * 5000)),
        *(("compare", "--time-limit", value) for value in ("inf", "nan", "1e400", "-1", "0")),
        *(("compare", "--size", f"n={value}") for value in (1 << 62, HUGE, "-1", "1e3", "9" * 5000)),
        *(("compare", "--device-id", value) for value in (HUGE, "-1")),
        *(("prepare", "--metric-bound", value) for value in ("nan", "inf", "1e400")),
        *(("prepare", "--pin", f"n={value}") for value in (1 << 62, HUGE, "9" * 5000, "1.5")),
        *(("kit pack", "--runs", value) for value in (HUGE, "0")),
        *(("kit pack", "--warm-up", value) for value in (HUGE, "0")),
        *(("feeds", "--scale", value) for value in ("nan", "inf", "-inf")),
        *(("feeds", "--mean", value) for value in ("nan", "0,inf", "1e400")),
        *(("feeds", "--set", f"x={value}") for value in (HUGE, "9" * 5000)),
        *(("feeds", "--count", value) for value in (HUGE, "0")),
        *(("feeds", "--rate", value) for value in (HUGE, "0")),
    ],
)
def test_numbers_of_options(option: tuple[str, str, str], model: Path, tmp_path: Path, run: Run) -> None:
    command, name, value = option
    others = {"compare": [model], "feeds": [model, "-o", tmp_path / "f"]}.get(command, ["-o", tmp_path / "out"])
    done = run(*command.split(), model, *others, name, value)
    assert done.code == 2, (done.out, done.err)
    assert "internal" not in done.err
    assert name in done.err or "size" in done.err or "not a valid pin" in done.err


def test_limits_before_the_command_are_those_of_python() -> None:
    assert set(LIMITS) == set(inspect.signature(dmlprep.limits).parameters)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("onnx_seconds", value) for value in ("inf", "nan", "1e30", "1e400", "0", "-1", "9" * 5000)),
        *(("onnx_bytes", value) for value in (HUGE, str(2**63 - 1), "0", "nan", "9" * 5000)),
        *(("made_bytes", value) for value in (HUGE, "-1", "nan", "9" * 5000, "")),
        *(("run_seconds", value) for value in ("nan", "0", "1e400")),
        ("made_mistakes", "1"),
    ],
)
def test_numbers_of_limits(name: str, value: str, model: Path, run: Run) -> None:
    done = run("--limit", f"{name}={value}", "check", model)
    assert done.code == 2, (done.out, done.err)
    assert name in done.err


def test_the_largest_limits(model: Path, run: Run) -> None:
    limits = {"onnx_seconds": "1e8", "onnx_bytes": 1 << 44, "made_bytes": 1 << 60}
    options = (word for name, value in limits.items() for word in ("--limit", f"{name}={value}"))
    assert run(*options, "check", model).code in (0, 1)


@pytest.mark.parametrize("limits", [Limits(seconds=math.inf), Limits(seconds=math.nan), Limits(memory=1 << 70)])
def test_limits_from_python(limits: Limits) -> None:
    with pytest.raises(UsageError, match="is not a limit"), limited(limits):
        pass


def _numbers(command: click.Command, path: str) -> Iterator[tuple[str, click.ParamType]]:
    """Options and arguments of a command, and of all below it, that take a number."""
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _numbers(below, f"{path} {name}")
    for parameter in command.params:
        kinds = parameter.type.types if isinstance(parameter.type, click.Tuple) else [parameter.type]
        yield from (
            (f"{path} {parameter.name}", kind) for kind in kinds if kind.name.split()[0] in ("integer", "float")
        )


def test_every_number_has_a_smallest_and_a_largest() -> None:
    numbers = dict(_numbers(cli, "dmlprep"))
    assert len(numbers) > 30
    open_ended = {
        place: kind
        for place, kind in numbers.items()
        if not isinstance(kind, (click.IntRange, click.FloatRange)) or kind.min is None or kind.max is None
    }
    assert open_ended == {}
    # A range of click's own takes NaN.
    assert [place for place, kind in numbers.items() if type(kind) is click.FloatRange] == []


@pytest.mark.parametrize(
    "setting",
    [
        "parity.seeds=10001",
        "parity.seeds=0",
        "parity.sizes={n=4611686018427387904}",
        "parity.sizes={n=0}",
        "parity.time_limit=inf",
        "parity.time_limit=nan",
        "parity.time_limit=1e400",
        "parity.metric_bound=nan",
        "parity.metric_bound=-inf",
        "step.simplify.time_limit=inf",
        "step.simplify.constant_kib=4611686018427387904",
        "step.simplify.feeds=4611686018427387904",
        "step.pin.sizes={n=4611686018427387904}",
        "step.pin.shapes={x=[4611686018427387904, 2]}",
        "step.opset.version=4611686018427387904",
        'parity.metric="a\\u0000b.py:f"',
    ],
)
def test_numbers_of_recipes(setting: str, model: Path, tmp_path: Path, run: Run) -> None:
    done = run("prepare", model, "-o", tmp_path / "out", "-r", "@static-fp32", "--set", setting)
    assert done.code == 2, (done.out, done.err)
    assert setting.partition("=")[0].rpartition(".")[2] in done.err or "pin" in done.err or "value" in done.err


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes and no /dev among files")
def test_kits_and_sources_that_have_no_end(model: Path, tmp_path: Path, run: Run) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        done = run("kit", "verify", path, "--kit", path)
        assert (done.code, "this is a" in done.err) == (2, True)
    assert run("feeds", model, pipe, "-o", tmp_path / "f").code == 2
