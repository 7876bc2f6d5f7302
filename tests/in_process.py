"""Commands run in the process of the test: half a second less than a process of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dmlprep.cli.main import command_line


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in this process, as the console script does. No DirectML runtime is installed for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-runtime"))
    monkeypatch.setenv("NO_COLOR", "1")

    def command(*arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["dmlprep", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            command_line()
        out, err = capfd.readouterr()
        code = left.value.code
        return Done(code if isinstance(code, int) else 0, out, err)

    return command
