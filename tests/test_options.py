"""The options of ``prepare`` are declared once: every place where they are taken has the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import dmlprep
from dmlprep.cli.prepare import command
from dmlprep.core.errors import UsageError
from dmlprep.pipeline.options import OPTIONS, PrepareKeywords, PrepareOptions
from dmlprep.pipeline.project import read_project
from tests.fixtures_index import fixture
from tests.in_process import Run

CNN = fixture("residual_cnn").path


def test_keywords_are_the_fields() -> None:
    assert set(PrepareKeywords.__optional_keys__) == set(OPTIONS)


def test_the_command_line_has_every_option_with_its_default() -> None:
    typed = command.make_context("prepare", []).params
    assert {name: typed.get(name, "no such option") for name in OPTIONS} == {
        name: getattr(PrepareOptions(), name) for name in OPTIONS
    }


@pytest.mark.parametrize("name", [name for name, one in OPTIONS.items() if not one.in_files])
def test_files_take_the_others_only(name: str, tmp_path: Path) -> None:
    (tmp_path / "dmlprep.toml").write_text(f"{name} = 1\n")
    with pytest.raises(UsageError, match="unknown field"):
        read_project(tmp_path / "dmlprep.toml")


def test_words_of_a_command_line() -> None:
    given = {"require_dml": True, "force": False, "feeds": ["a.npz", "b"], "metric_bound": 0.5, "recipe": "@check-only"}
    words = [word for name, value in given.items() for word in OPTIONS[name].words(name, value)]
    assert words == ["--require-dml", "--feeds=a.npz", "--feeds=b", "--metric-bound=0.5", "--recipe=@check-only"]


def test_the_record_names_what_was_chosen(tmp_path: Path) -> None:
    record = dmlprep.prepare(CNN, out=tmp_path, device="cpu", pins={"batch": 1}, force=True)
    assert record.options == {"device": "cpu", "pins": {"batch": 1}, "force": True}
    assert dmlprep.read_record(tmp_path / "run.json").options == record.options


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("settings", ["parity.seeds=4"]),
        ("settings", {0: 1}),
        ("pins", "batch=1"),
        ("device", "gpu"),
        ("device_id", -1),
        ("bench_seconds", float("nan")),
        ("metric_bound", "x"),
        ("feeds", "one.npz"),
    ],
)
def test_a_value_from_python_is_checked_like_one_from_the_command_line(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"is not a value of {name}"):
        dmlprep.prepare(CNN, out="never", **{name: value})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"is not a value of {name}"):
        dmlprep.prepare_project("no.toml", **{name: value})  # type: ignore[arg-type]


def test_none_is_no_pin_and_no_setting(tmp_path: Path) -> None:
    options = PrepareOptions(pins=None, settings=None)  # type: ignore[arg-type]
    assert (options.pins, options.settings, options.chosen) == ({}, {}, {})


def test_a_function_refuses_a_demand_that_it_would_ignore() -> None:
    with pytest.raises(TypeError, match="require_dml"):
        dmlprep.compare(CNN, CNN, require_dml=True)  # type: ignore[call-arg]


def test_plan_refuses_settings_that_are_texts() -> None:
    with pytest.raises(UsageError, match="settings must be a dict from field to value"):
        dmlprep.plan("@static-fp32", settings=["parity.seeds=4"])  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["2020-01-01", "12:00:00", "[1, 2020-01-01]", "1\nw=2"])
def test_a_setting_that_is_not_a_value_is_refused(value: str, run: Run, tmp_path: Path) -> None:
    done = run("prepare", CNN, "-o", tmp_path / "out", "--set", f"parity.seeds={value}")
    assert (done.code, "this is not a value" in done.err) == (2, True)


def test_values_of_inputs_with_ragged_rows_or_nan(run: Run, tmp_path: Path) -> None:
    ragged = run("prepare", CNN, "-o", tmp_path / "out", "--pin", "batch=1", "--pin", "pixel_values:=[[1,2],[3]]")
    assert (ragged.code, "its rows have different lengths" in ragged.err) == (2, True)
    assert "two values" not in run("prepare", CNN, "-o", tmp_path / "out", "--pin", "pixel_values:=nan").err


def test_the_record_of_an_error_names_what_was_chosen(run: Run, tmp_path: Path) -> None:
    done = run("prepare", CNN, "-o", tmp_path / "out", "--pin", "none=1", "--record", tmp_path / "r.json")
    record = dmlprep.read_record(tmp_path / "r.json")
    assert (done.code, record.exit_code, record.options) == (2, 2, {"pins": {"none": 1}})
