"""Completion, by the shells themselves where they are there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.in_process import Run

_ASKED = [
    ("dmlprep prep", "prepare"),
    ("dmlprep prepare m.onnx --requ", "--require-dml"),
    ("dmlprep explain ort-1.3", "ort-1.30"),
    ("dmlprep prepare m.onnx -r @vis", "@vision-fp16"),
    ("dmlprep package ver", "verify"),
]


@pytest.mark.parametrize(("line", "word"), _ASKED)
def test_what_a_shell_is_answered(line: str, word: str) -> None:
    asks = {"_DMLPREP_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "dmlprep"], env={**os.environ, **asks}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"plain,{word}" in done.stdout.splitlines()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder for PATH with a program ``dmlprep`` in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "dmlprep"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dmlprep "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes(shell: str, program: Path, tmp_path: Path, run: Run) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} is here")
    script = tmp_path / f"dmlprep.{shell}"
    script.write_text(run("completion", shell).out, encoding="utf-8")
    asks = {
        "bash": f"""source {script}; COMP_WORDS=(dmlprep prepare m.onnx --requ)
            COMP_CWORD=3; f=$(complete -p dmlprep | sed 's/.*-F \\([^ ]*\\).*/\\1/')
            $f dmlprep --requ m.onnx; echo "${{COMPREPLY[@]}}" """,
        "zsh": f"""autoload -U compinit && compinit -u -D; source {script}; (( $+_comps[dmlprep] )) && dmlprep_ok=1
            COMP_WORDS="dmlprep prepare m.onnx --requ" COMP_CWORD=3 _DMLPREP_COMPLETE=zsh_complete dmlprep
            echo $dmlprep_ok""",
        "fish": f"source {script}; complete -C 'dmlprep prepare m.onnx --requ'",
    }[shell]
    home = {"HOME": str(tmp_path), "PATH": f"{program}{os.pathsep}{os.environ['PATH']}"}
    where = {**os.environ, **home, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([shell, "-c", asks], env=where, capture_output=True, text=True, check=False)
    assert "--require-dml" in done.stdout, done.stderr
    if shell == "zsh":
        assert done.stdout.strip().endswith("1")


def test_it_is_written_where_the_shell_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    done = run("completion", "bash", "--install")
    file = tmp_path / "data/bash-completion/completions/dmlprep"
    assert (done.code, file.is_file()) == (0, True)
    assert run("completion", "bash", "--install").code == 2
    assert run("completion", "bash", "--install", "--force").code == 0
    assert "~/.zshrc" in run("completion", "zsh", "--install").out
    assert "$PROFILE" in run("completion", "powershell", "--install").out
