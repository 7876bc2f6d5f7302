"""A command line that is copied runs what it says, whatever is in its names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings

from dmlprep.core.text.shell import command_line, word
from dmlprep.portable.printable import shortened
from tests.hostile_names import NASTY, names, nothing_acts
from tests.system import not_on_windows

_BASH = shutil.which("bash") or ""


def test_plain_words_stay_as_they_are() -> None:
    line = command_line("dmlprep", "prepare", PurePosixPath("out/model.onnx"), "--pin", "batch=1")
    assert line == "dmlprep prepare out/model.onnx --pin batch=1"
    assert word(PurePosixPath("-o.onnx"), windows=False) == "./-o.onnx"
    assert word("my model.onnx", windows=False) == "'my model.onnx'"
    assert word("my model.onnx", windows=True) == '"my model.onnx"'
    assert word("C:\\models\\a.onnx", windows=True) == "C:\\models\\a.onnx"


@pytest.mark.parametrize("name", ["a%PATH%", "a$env:x", 'a"b', "a`n", "a\u201cb", "a\x1b", "ends\\ \\", "a!b!"])
def test_what_cmd_and_powershell_do_not_quote_alike_is_left_out(name: str) -> None:
    assert word(name, windows=True) == "NAME"


@not_on_windows("bash reads its words")
@pytest.mark.skipif(not _BASH, reason="there is no bash here")
@settings(max_examples=30, deadline=None)
@given(names())
def test_bash_reads_back_what_was_meant(name: str) -> None:
    words = [w for w in (name, f"{name}=4", *NASTY) if "\0" not in w]
    line = command_line("printf", r"%s\0", *words, whole=True)
    nothing_acts(line)
    read = subprocess.run([_BASH, "-c", line], capture_output=True, check=True, cwd=Path(__file__).parent)
    assert read.stdout.decode().split("\0") == [*words, ""]
    assert read.stderr == b""


@pytest.mark.parametrize("length", [1, 550, 570, 600, 5000])
@pytest.mark.parametrize("count", [1, 9, 99])
def test_output_does_not_cut_a_command(length: int, count: int) -> None:
    """A command with a part left out might have an odd number of quotes."""
    name = "x" * (length // 2) + "'" + "y" * (length // 2) + "$(reboot)"
    line = command_line("dmlprep", "check", "m.onnx", *[name] * count)
    assert shortened(line) == line
    assert line == command_line("dmlprep", "check", "m.onnx", *[name if word(name) in line else "NAME"] * count)


def test_a_command_with_thousands_of_names_has_none_of_them() -> None:
    line = command_line("dmlprep", "check", *(f"{one} $(reboot)" for one in range(5000)))
    assert {*line.split()} == {"NAME"}
