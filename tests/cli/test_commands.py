"""Commands as a user types them: exit code, stdout and stderr apart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from onnx import parser

from dmlprep.cli.commands import COMMANDS, OPTIONS, help_text
from dmlprep.cli.main import MOVED, cli
from dmlprep.cli.values import read_pins
from dmlprep.core.errors import UsageError
from dmlprep.record import RunRecord
from tests.in_process import Run
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x) => (float[batch, 4] y) <float[4] b = {1, 2, 3, 4}> { a = Add(x, b)  y = Relu(a) }"""


def _dmlprep(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "FORCE_COLOR"}
    return subprocess.run(
        [sys.executable, "-m", "dmlprep", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )


@pytest.fixture
def add_model(tmp_path: Path) -> Path:
    path = tmp_path / "add model.onnx"
    onnx.save(parser.parse_model(_TEXT), path)
    return path


def test_help_names_every_command_that_people_need() -> None:
    done = _dmlprep("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: dmlprep ")
    listed = {name for name in COMMANDS if f"\n  {name} " in done.stdout}
    assert COMMANDS.keys() - listed == {"completion"}
    assert len(listed) <= 16


@pytest.mark.parametrize("word", ["--help", "-h", "--version", "-V"])
def test_help_and_version_are_those_of_click_without_its_import(word: str, run: Run) -> None:
    code = (
        "import sys, dmlprep.cli.start as start; sys.argv = ['dmlprep', sys.argv[1]]\n"
        "try: start.main()\n"
        "finally: assert 'click' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, word], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run(word).out


def test_the_help_has_the_options_that_exist() -> None:
    declared = [option.opts for option in cli.get_params(click.Context(cli))]
    assert sorted(word for words in declared for word in words) == sorted(
        word for row in OPTIONS for word in row.removesuffix(" NAME=N").split(", ")
    )


@pytest.mark.parametrize("columns", [20, 80, 300])
def test_the_help_fits_the_terminal(columns: int) -> None:
    lines = help_text(columns).splitlines()
    assert max(map(len, lines)) <= max(min(columns, 110) - 2, 50)
    assert help_text(columns).isascii()  # every code page has these letters


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(command: str, run: Run) -> None:
    done = run(command, "--help")
    assert (done.code, done.err) == (0, "")
    first = done.out.splitlines()[0]
    assert first.startswith("Usage: ")
    assert f"dmlprep {command} " in first


def _leaves(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _leaves(below, *path, name)


def test_help_shows_at_most_15_options_and_help_all_shows_every_option(run: Run) -> None:
    for path, command in _leaves(cli):
        flags = {one.opts[-1] for one in command.params if isinstance(one, click.Option) and not one.hidden} | {
            "--help"
        }
        short, full = run(*path, "--help"), run(*path, "--help-all")
        shown = {flag for flag in flags if re.search(rf"^  (-\w, )?{flag}\b(?!-)", short.out, re.MULTILINE)}
        assert len(shown) <= 15, path
        assert {flag for flag in flags if re.search(rf"^  (-\w, )?{flag}\b(?!-)", full.out, re.MULTILINE)} == flags
        last = short.out.splitlines()[-1]
        left_out = len(flags) - len(shown)
        assert last.startswith(f"{left_out} more option") is bool(left_out), path
        assert (last.endswith(f"dmlprep {' '.join(path)} --help-all"), full.code) == (bool(left_out), 0)
        assert "x<=" not in re.sub(r"<=x<=\d\d?\]", "", full.out)  # bounds that only keep out mistakes


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; import dmlprep.cli.main; "
    code += "print([m for m in ('onnx', 'numpy', 'onnx_ir', 'onnxruntime', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_typo_is_answered_with_the_word_meant(run: Run) -> None:
    done = run("perpare")
    assert done.code == 2
    assert "Did you mean 'prepare'" in done.err
    assert "Did you mean '--recipe'?" in run("prepare", "--recpe", "@vision-fp16").err
    assert done.out == ""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGPIPE")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["explain", "recipes"], ["explain", "latest"]])
def test_a_reader_that_leaves_is_no_failing_model(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dmlprep", *arguments], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_behind_stdout_is_no_bug_of_ours() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dmlprep", "explain", "recipes"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert b"error: No space left on device" in done.stderr


@pytest.mark.parametrize("name", ["a file/out", "x" * 300])
def test_an_output_that_cannot_be_written_fails_before_the_work(
    name: str, add_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.chdir(tmp_path)
    done = run("prepare", add_model, "-o", name)
    assert done.code == 2
    assert "cannot be written" in done.err
    assert "pin:" not in done.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a file", "add model.onnx"]


def test_prepare_writes_model_and_record(add_model: Path, tmp_path: Path, run: Run) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('doc = "d"\n[step.pin]\n')
    before = add_model.read_bytes()
    out = tmp_path / "out here"
    done = run(
        "prepare",
        add_model,
        "-o",
        out,
        "--recipe",
        recipe,
        "--pin",
        "batch=3",
        "--device",
        "cpu",
        "--depfile",
        tmp_path / "d.d",
    )
    assert done.code == 0, done.err
    assert "proved on the CPU" in done.out
    assert "pin: changed" in done.err
    assert sorted(p.name for p in out.iterdir()) == ["model.onnx", "run.json"]
    assert add_model.read_bytes() == before
    record = json.loads((out / "run.json").read_bytes())
    assert record["verdicts"][0]["outcome"] == "passed"
    assert "add\\ model.onnx" in (tmp_path / "d.d").read_text()
    again = run("prepare", add_model, "-o", out, "--recipe", recipe, "--pin", "batch=3", "--device", "cpu")
    assert again.code == 2
    assert "--force" in again.err
    shown = run("report", out / "run.json")
    assert shown.code == 0
    assert "parity on cpu: passed" in shown.out
    page = run("report", out / "run.json", "--html", tmp_path / "r.html")
    assert page.code == 0
    assert "<html" in (tmp_path / "r.html").read_text()


def test_json_on_stdout_is_only_json(add_model: Path, tmp_path: Path, run: Run) -> None:
    done = run(
        "prepare", add_model, "-o", tmp_path / "o", "--recipe", "@check-only", "--device", "cpu", "--format", "json"
    )
    assert json.loads(done.out)["exit_code"] == 0


def test_output_over_the_input_is_refused(add_model: Path, run: Run) -> None:
    before = add_model.read_bytes()
    done = run("prepare", add_model, "-o", add_model, "--recipe", "@check-only", "--force")
    assert done.code == 2
    assert "never overwritten" in done.err
    assert add_model.read_bytes() == before


def test_options_that_contradict_each_other(add_model: Path, tmp_path: Path, run: Run) -> None:
    done = run("prepare", add_model, "-o", tmp_path / "o", "--device", "cpu", "--require-dml")
    assert (done.code, done.out) == (2, "")


def test_compare(add_model: Path, tmp_path: Path, run: Run) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(parser.parse_model(_TEXT.replace("{1, 2, 3, 4}", "{1, 2, 3, 5}")), other)
    assert run("compare", add_model, add_model).code == 0
    done = run("compare", add_model, other, "--format", "json")
    assert done.code == 1
    assert json.loads(done.out)["outcome"] == "failed"


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["explain", "recipes"], "@vision-fp16"),
        (["explain", "codes"], "DP501"),
        (["explain", "passes"], "fp16"),
        (["explain", "@vision-fp16"], "toml"),
        (["explain", "fp16"], "options"),
        (["explain", "latest", "--op", "Conv"], "kernels"),
        (["explain", "ort-1.20", "latest"], "kernels added"),
        (["explain", "dp501"], "page"),
        (["explain", "501"], "page"),
        (["check", "--node", "Add(a)", "MODEL"], "lines"),
        (["check", "MODEL", "--plan"], "steps"),
        (["check", "MODEL"], "summary"),
        (["doctor", "--no-dml"], "findings"),
    ],
)
def test_every_command_that_tells_something_tells_it_in_json(
    arguments: list[str], key: str, add_model: Path, run: Run
) -> None:
    done = run(*[add_model if a == "MODEL" else a for a in arguments], "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert key in json.loads(done.out)


def test_recipes(run: Run) -> None:
    names = json.loads(run("explain", "recipes", "--format", "json").out)
    assert "@vision-fp16" in names
    assert {name for name in names if run("explain", name).code} == set()
    shown = json.loads(run("explain", "@vision-fp16", "--format", "json").out)
    assert [s["step"] for s in shown["steps"]] == ["pin", "opset", "simplify", "fix-quirks", "fp16"]
    assert shown["steps"][-1]["options"]["keep_io"] is True
    assert "[step.fp16]" in shown["toml"]
    assert run("explain", "@vision").code == 2


def test_a_recipe_as_text_shows_every_option_as_a_recipe_writes_it(run: Run) -> None:
    done = run("explain", "@vision-fp16")
    assert done.code == 0
    for line in ("     sizes = {}", "     keep_io = true", '     islands = "auto"'):
        assert line in done.out.splitlines()
    assert done.out.splitlines()[-1].startswith("then: parity on the CPU, the FP16 emulation (storage), parity on ")


@pytest.mark.parametrize("words", list(MOVED), ids=" ".join)
def test_a_word_of_habit_is_answered_with_the_command_that_does_it(words: tuple[str, ...], run: Run) -> None:
    done = run(*words, "x", "y")
    assert (done.code, done.out) == (2, "")
    assert f"Use: {MOVED[words]}" in done.err


def test_plan_of_a_model_says_what_prepare_would_do(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "gelu.onnx"
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[n,4] x) => (float[n,4] y) { [g] y = Gelu (x) }'
    onnx.save(onnx.parser.parse_model(text), path)
    done = run("check", path, "--plan")
    assert done.code == 0
    assert "      1 x Gelu-20  by step opset" in done.out.splitlines()
    assert done.out.splitlines()[-1] == f"run: dmlprep prepare {path} -o out --pin n=1"
    told = json.loads(run("check", path, "--plan", "--pin", "n=3", "--format", "json").out)
    assert (told["format"], told["sizes"], told["after"]["compute_nodes_on_cpu"]) == (1, {"n": 3}, 0)
    assert "bring 1 of 1 compute node to DirectML" in run("check", path).out
    assert run("check", path, "--plan", "--pin", "m=3").code == 2
    assert [p.name for p in tmp_path.iterdir()] == ["gelu.onnx"]
    half = run("check", path, "--plan", "--recipe", "@vision-fp16", "--set", "step.fp16.islands=off", "--pin", "n=1")
    assert "  5. fp16: " in half.out
    assert run("check", path, "--plan", "--recipe", tmp_path / "none.toml").code == 2


def test_plans_of_several_models(add_model: Path, tmp_path: Path, run: Run) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    done = run("check", "--plan", add_model, bad, add_model, "--format", "json")
    assert done.code == 2
    assert "bad.onnx" in done.err
    assert [one["model"] for one in json.loads(done.out)["models"]] == [str(add_model)]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--plan", "--verify"], "--verify has no effect with --plan"),
        (["--plan", "--vram", "4GB"], "--vram has no effect with --plan"),
        (["--plan", "--target", "all"], "this option needs one release"),
        (["--plan", "--format", "sarif"], "--format text or json"),
        (["--pin", "batch=1"], "--pin needs --plan"),
        (["-r", "@vision-fp16"], "--recipe needs --plan"),
        (["--node", "a", "--plan"], "--plan has no effect with --node"),
    ],
)
def test_options_of_check_that_do_not_fit_together(more: list[str], says: str, add_model: Path, run: Run) -> None:
    done = run("check", add_model, *more)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_report_of_something_else(add_model: Path, run: Run) -> None:
    done = run("report", add_model)
    assert done.code == 2
    assert "not a run record" in done.err
    assert "fix: pass the run.json that prepare wrote" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_record_that_went_through_powershell(encoding: str, tmp_path: Path, run: Run) -> None:
    record = RunRecord(command="prepare", input="модель.onnx").to_json().decode("utf-8")
    (tmp_path / "run.json").write_bytes(record.replace("\n", "\r\n").encode(encoding))
    done = run("report", tmp_path / "run.json", "--format", "json")
    assert done.code == 0, done.err
    assert RunRecord.from_json(done.out.encode()).input == "модель.onnx"


def _reads(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "win32", reason="only Windows keeps others from a file")
@pytest.mark.parametrize("how", ["not shared", "bytes locked"])
def test_an_input_that_another_program_has_open(how: str, add_model: Path, tmp_path: Path, run: Run) -> None:
    import _winapi
    import msvcrt

    record, recipe = tmp_path / "run.json", tmp_path / "r.toml"
    record.write_bytes(RunRecord(command="prepare", input="m").to_json())
    recipe.write_text('doc = "d"', encoding="utf-8")
    for path, command in (
        (add_model, ("check", add_model)),
        (record, ("report", record)),
        (recipe, ("explain", recipe)),
        (tmp_path / "f.npy", ("compare", add_model, add_model, "--feeds", f"x={tmp_path / 'f.npy'}")),
    ):
        if how == "bytes locked" and path == add_model:
            continue  # a mapped file does not know such locks
        if not path.exists():
            np.save(path, np.zeros(3))
        if how == "not shared":
            handle = _winapi.CreateFile(str(path), _winapi.GENERIC_READ, 0, 0, _winapi.OPEN_EXISTING, 0, 0)
            try:
                done = run(*command)
            finally:
                _winapi.CloseHandle(handle)
        else:
            with path.open("r+b") as other:
                msvcrt.locking(other.fileno(), msvcrt.LK_NBLCK, path.stat().st_size)
                kept_out = not _reads(path)
                done = run(*command)
                other.seek(0)
                msvcrt.locking(other.fileno(), msvcrt.LK_UNLCK, path.stat().st_size)
            if not kept_out:
                pytest.skip("locked bytes keep nobody from reading here: Wine")
        assert done.code == 2, done.err
        assert f"{path}: is open in another program" in done.err
        assert "permission" not in done.err.lower()


@pytest.mark.parametrize("pin", ["batch", "batch=", "batch=x", "=3", "batch=-1", "batch=1.5", ":=3", "sr:="])
def test_pins_that_are_none(pin: str) -> None:
    with pytest.raises(UsageError):
        read_pins((pin,))


def test_pins() -> None:
    assert read_pins(("batch=1", "x:0=2", "a=b=3")) == {"batch": 1, "x:0": 2, "a=b": 3}
    assert read_pins(("batch=1", "batch=1")) == {"batch": 1}
    with pytest.raises(UsageError, match="two sizes"):
        read_pins(("batch=1", "batch=2"))
    values = read_pins(("sr:=16000", "n=1", "w:=[0.5, 2]", "lang:=de", "on:=true"))
    assert values == {"sr:": 16000, "n": 1, "w:": [0.5, 2], "lang:": "de", "on:": True}
    with pytest.raises(UsageError, match="two values"):
        read_pins(("sr:=16000", "sr:=8000"))
