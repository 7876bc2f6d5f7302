"""The README's commands are those that are run."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).parents[1]


def test_ci_runs_the_second_command_of_the_readme() -> None:
    commands = [line for line in (_ROOT / "README.md").read_text().splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert commands[1] in (_ROOT / ".ci" / "run").read_text().splitlines()
