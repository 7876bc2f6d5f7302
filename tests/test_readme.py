"""The README's commands are those that are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.in_process import Run
from tests.shown import Typed, steps, unlike

_ROOT = Path(__file__).parents[1]


def test_the_readme_shows_what_check_prints(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(_ROOT)
    typed = [one for one in steps((_ROOT / "README.md").read_text(encoding="utf-8")) if isinstance(one, Typed)]
    (check,) = [one for one in typed if one.command.startswith("dmlprep check fixtures/")]
    done = run(*check.command.split()[1:])
    printed = done.out.replace("\\", "/")  # paths of Windows
    assert (done.code, unlike(check.shown, printed.splitlines())) == (0, "")
