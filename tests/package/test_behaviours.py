"""The table of behaviours: which test shows each behaviour of each language's loader, and where this test runs."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from dmlprep.package import LANGUAGES

ROOT = Path(__file__).resolve().parents[2]
BEHAVIOURS = (
    "device missing", "package missing", "wrong file", "wrong shape", "wrong type", "two threads", "device removed",
    "tampering", "bucket choice", "out of memory", "fall-back said once",
)  # fmt: skip
CELLS = {"DirectML in Wine": "DirectML", "a stand-in": "stand-in", "CPU": "CPU"}
"""The cell of the table, by the value of ``on``."""


def rows(language: str) -> dict[str, dict[str, str]]:
    """Return the rows of ``behaviours/LANGUAGE.toml``: ``test`` and ``on``, or ``not`` with the reason."""
    path = Path(__file__).parent / "behaviours" / f"{language}.toml"
    return dict(tomllib.loads(path.read_text(encoding="utf-8"))["behaviours"])


def table() -> str:
    """Return the table in Markdown, and the reasons for the empty cells."""
    languages = {name: rows(name) for name in sorted(LANGUAGES)}
    lines = [
        "| behaviour | " + " | ".join(LANGUAGES[name].title for name in languages) + " |",
        "|---" * (1 + len(languages)) + "|",
    ]
    reasons = []
    for behaviour in BEHAVIOURS:
        cells = []
        for name, row in languages.items():
            one = row[behaviour]
            cells.append(CELLS[one["on"]] if "on" in one else "-")
            if "not" in one:
                reasons.append(f"- {LANGUAGES[name].title}, {behaviour}: {one['not']}")
        lines.append(f"| {' | '.join([behaviour, *cells])} |")
    return "\n".join([*lines, *(["", *reasons] if reasons else [])])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_test_or_a_reason_for_each_behaviour(language: str) -> None:
    known = rows(language)
    assert sorted(known) == sorted(BEHAVIOURS)
    for behaviour, one in known.items():
        assert set(one) in ({"test", "on"}, {"not"}), behaviour
        assert one.get("on", "CPU") in CELLS, behaviour


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_named_test_exists(language: str) -> None:
    for behaviour, one in rows(language).items():
        if "test" not in one:
            continue
        path, *names = one["test"].partition("[")[0].split("::")
        body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        for name in names:
            (match,) = [node for node in body if getattr(node, "name", "") == name] or [None]
            assert isinstance(match, (ast.FunctionDef, ast.ClassDef)), f"{behaviour}: {one['test']} does not exist"
            body = match.body
        assert names[-1].startswith("test_"), one["test"]


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "ship-it.md").read_text(encoding="utf-8")
    section = page.partition("\n## Tested\n")[2].partition("\n## ")[0]
    if f"\n{table()}\n" not in section:
        pytest.fail(f"the section Tested of docs/ship-it.md needs this table:\n\n{table()}\n", pytrace=False)
