"""Narrow terminals: a line that is too long goes on with an indent, and a command can be copied."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from rich.text import Text

from dmlprep.cli import output
from dmlprep.cli.main import cli
from dmlprep.core.text.hanging_indent import hanging, is_command
from dmlprep.report.console import PlainConsole
from tests.fixtures_index import fixture
from tests.in_process import Run

MODEL = fixture("residual_cnn").path

SAID = "parity on cpu: passed with synthetic inputs (worst relative error 0.001 at logits, 2 feeds, tolerance fp16-cpu)"
COMMAND = "use it: dmlprep prepare model.onnx -o out --recipe @vision-fp16 --pin batch=1 --pin height=224"


def _printed(text: str, width: int) -> list[str]:
    written = io.StringIO()
    PlainConsole(file=written, width=max(80, width), text_width=width, color_system=None).print(Text(text))
    return written.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("indent", [0, 2, 6])
def test_a_long_line_goes_on_with_an_indent(width: int, indent: int) -> None:
    text = " " * indent + SAID
    for lines in (_printed(text, width), hanging(text, width).split("\n")):
        assert len(lines) > 1
        assert all(len(line) <= width for line in lines)
        assert all(line.startswith(" " * (indent + 4)) and line[indent + 4] != " " for line in lines[1:])
        assert " ".join(line.strip() for line in lines) == SAID
    assert _printed(SAID, 200) == [SAID] == hanging(SAID, 200).split("\n")


def test_a_command_is_left_to_the_terminal() -> None:
    assert is_command(COMMAND)
    assert is_command("  dmlprep check 'my model.onnx' --node reboot")
    assert is_command("see dmlprep genai prepare 'my folder' -o out")
    assert not is_command("dmlprep feeds makes them from pictures")
    assert _printed(COMMAND, 40) == [COMMAND] == hanging(COMMAND, 40).split("\n")


def test_what_stands_before_a_line_counts() -> None:
    lines = hanging(SAID, 60, before=7).split("\n")
    assert len(lines[0]) <= 53
    assert " ".join(line.strip() for line in lines) == SAID


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_and_errors_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(output.sys, "stdout", out := _Terminal())
    output.echo(SAID)
    output.echo_lines([f"  {SAID}"])
    assert all(len(line) <= 60 for line in out.getvalue().split("\n"))
    monkeypatch.setattr(output.sys, "stdout", piped := io.StringIO())
    output.echo(SAID)
    assert piped.getvalue() == f"{SAID}\n"
    monkeypatch.setattr(output.sys, "stderr", err := _Terminal())
    output.say(SAID, fix=SAID)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", err.getvalue()).rstrip("\n").split("\n")
    assert all(len(line) <= 60 for line in lines)
    assert [line for line in lines if not line.startswith("    ")] == [lines[0], next(x for x in lines if "fix: " in x)]


def _commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*before, name))
        else:
            yield (*before, name), command


def test_every_command_can_be_quiet() -> None:
    loud = [
        words for words, one in _commands(cli) if "--quiet" not in {name for param in one.params for name in param.opts}
    ]
    assert loud == [("completion",)], "which prints a script, or one line"


@pytest.mark.parametrize(
    "words",
    [
        ("check", MODEL, "--plan", "-q", "--no-project", "--pin", "batch=1"),
        ("explain", "DP501", "-q"),
        ("explain", "fp16", "-q"),
        ("explain", "@vision-fp16", "-q"),
        ("explain", "1.20", "-q"),
        ("explain", "ort-1.20", "ort-1.24", "-q"),
        ("doctor", "--no-dml", "-q"),
        ("runtime", "remove", "-q"),
    ],
    ids=lambda words: " ".join(map(str, words[:2])),
)
def test_one_line(words: tuple[str | Path, ...], run: Run) -> None:
    done = run(*words)
    assert (done.code, done.out.count("\n"), done.err) == (0, 1, "")


def test_init_says_in_one_line_what_it_wrote(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("init", MODEL, "-q", "--yes")
    assert (done.code, done.out, done.err) == (0, "wrote dmlprep.toml: 1 model\n", "")


def test_below_a_label_the_text_goes_on() -> None:
    lines = hanging(f"@super-resolution-fp16  {SAID}", 70).split("\n")
    assert len(lines) > 2
    assert all(line.startswith(" " * 24) and line[24] != " " for line in lines[1:])
