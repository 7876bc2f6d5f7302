"""Prose is plain English: no finding more than allowed.toml allows, and the rules find what they are for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.prose import Pattern, allowed, count, everything, find, patterns
from tests.prose.texts import TOP, read

SHOWN = 20


def changed() -> set[tuple[str, int]]:
    """Return the lines, as file and number, that differ from the branch main; empty without git or such a branch."""
    git = ["git", "-C", str(TOP)]
    try:
        base = subprocess.check_output([*git, "merge-base", "main", "HEAD"], text=True, stderr=subprocess.DEVNULL)
        diff = subprocess.check_output([*git, "diff", "-U0", "--no-color", "--no-ext-diff", base.strip()])
    except (OSError, subprocess.CalledProcessError):
        return set()
    lines: set[tuple[str, int]] = set()
    file = ""
    for line in diff.decode(errors="replace").splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            lines.update((file, int(hunk[1]) + n) for n in range(int(hunk[2] or 1)))
    return lines


@pytest.fixture
def findings_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], list[tuple[str, int]]]:
    monkeypatch.setattr("tests.prose.texts.TOP", tmp_path)

    def findings(name: str, content: str) -> list[tuple[str, int]]:
        (tmp_path / name).write_text(content, encoding="utf-8")
        return [(finding.rule, finding.line) for finding in find(*read([tmp_path / name]))]

    return findings


def test_no_more_findings_than_allowed() -> None:
    counts = count(everything())
    above = {
        (rule, group): f"{rule} in {group}: {number}, allowed {allowed().get(rule, {}).get(group, 0)}"
        for rule, groups in counts.items()
        for group, number in groups.items()
        if number > allowed().get(rule, {}).get(group, 0)
    }
    if above:
        concerned = [finding for finding in everything() if (finding.rule, finding.group) in above]
        lines = changed()
        shown = [finding for finding in concerned if (finding.file, finding.line) in lines] or concerned[:SHOWN]
        pytest.fail("\n".join([*above.values(), *map(str, shown)]), pytrace=False)


def test_allowed_numbers_follow_the_findings_down() -> None:
    counts = count(everything())
    high = [
        f"{rule} in {group}: {most} allowed, {number} left"
        for rule, groups in allowed().items()
        for group, most in groups.items()
        if (number := counts.get(rule, {}).get(group, 0)) < most - max(10, most // 50)
    ]
    assert high == [], "python -m tests.prose --lower"


@pytest.mark.parametrize("pattern", patterns(), ids=lambda pattern: pattern.wrong)
def test_a_pattern_finds_its_wrong_sentence_and_not_its_right_one(pattern: Pattern) -> None:
    assert list(pattern.matches(pattern.wrong.lower()))
    assert not list(pattern.matches(pattern.right.lower()))


def test_the_list_is_short_enough_to_read() -> None:
    assert len(patterns()) <= 80


def test_a_page_is_read_without_its_code(findings_in: Callable[[str, str], list[tuple[str, int]]]) -> None:
    page = "# Beside\n\nUse `a beside b` and\n`c` in\nplace of it.\n\n```\nnobody\n```\n\n| x | once more |\n"
    assert findings_in("page.md", page) == [("dialect", 1), ("dialect", 4), ("dialect", 11)]


def test_long_sentences_and_wrong_letters(findings_in: Callable[[str, str], list[tuple[str, int]]]) -> None:
    assert findings_in("page.md", "One word.\n" + "Many words " * 16 + "here.\n") == [("long", 2)]
    assert findings_in("page.md", "A recieved file.\n") == [("spelling", 1)]


def test_docstrings_messages_comments_and_names(findings_in: Callable[[str, str], list[tuple[str, int]]]) -> None:
    source = (
        '"""Of a module."""\n'
        "found = 1  # kept beside it\n"
        'def f(path, said):\n    """Whether it is so.\n\n    Args:\n        path: Nobody\'s file.\n    """\n'
        '    raise E(f"{path}: the file lies in {said}", "a beside \\\\w")\n'
    )
    rules = [("start", 1), ("dialect", 2), ("name", 2), ("name", 3), ("start", 4), ("dialect", 7), ("dialect", 9)]
    assert findings_in("module.py", source) == rules
