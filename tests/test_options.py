"""The options of ``prepare`` are declared once: every place where they are taken has the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import dmlprep
from dmlprep.cli.prepare import command
from dmlprep.errors import UsageError
from dmlprep.options import OPTIONS, PrepareKeywords, PrepareOptions
from dmlprep.project import read_project
from tests.fixtures_index import fixture

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


def test_settings_are_values() -> None:
    with pytest.raises(UsageError, match="settings are values by field"):
        dmlprep.prepare(CNN, out="never", settings=["parity.seeds=4"])  # type: ignore[arg-type]
