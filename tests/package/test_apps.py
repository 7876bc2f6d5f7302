"""Samples of packages, built and run on the real DirectML in Wine: the script does it, these say what came of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dmlprep.cli.package import command
from dmlprep.package import LANGUAGES
from tests.system import not_on_windows

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.dml
@pytest.mark.slow
@pytest.mark.long
@not_on_windows("the script is for Linux, where it makes a Windows of its own")
@pytest.mark.parametrize("model", ["residual_cnn", "framed_cnn", "framed_detector", "bucketed_cnn"])
def test_the_samples_of_all_languages_print_the_same(model: str) -> None:
    line = [sys.executable, str(ROOT / "scripts" / "windows_apps.py"), "--model", model, *LANGUAGES]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode == 3:  # the languages that ran print the same
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{model} on DirectML: {', '.join(LANGUAGES)} ran; exit code 0" in done.stdout


def test_the_command_takes_all_languages() -> None:
    (option,) = [one for one in command.commands["pack"].params if one.name == "language"]
    assert sorted(option.type.to_info_dict()["choices"]) == sorted(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_file_of_a_language_is_there_and_named_in_the_docs(language: str) -> None:
    page = (ROOT / "docs" / "ship-it.md").read_text(encoding="utf-8")
    one = LANGUAGES[language]
    files = one.files()
    assert all(files.values())
    assert f"`--for {language}`" in page
    assert f"## {one.title}\n" in one.usage()
    assert f"## {one.title}\n" in page
