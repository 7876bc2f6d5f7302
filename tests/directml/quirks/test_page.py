"""What a quirk says of its code where nobody has written a page, and the line that both have."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dmlprep.directml.quirks import code_row, quirks
from dmlprep.directml.quirks.page import page, releases
from dmlprep.report import pages as report_pages

PAGES = Path(__file__).resolve().parents[3] / "docs" / "codes"
CODES = sorted({quirk.code for quirk in quirks()})


def test_it_has_the_sections_of_a_page() -> None:
    for code in CODES:
        text = page(code)
        assert text.startswith(f"# {code}: {code_row(code).title}\n")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["What", "Why", "How to fix", "Source"], code
        assert all(body.strip() for body in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]), code
        assert "None" not in text


def test_a_page_that_somebody_wrote_names_the_same_releases() -> None:
    wrong = []
    for code in (code for code in CODES if (PAGES / f"{code}.md").exists()):
        written = (PAGES / f"{code}.md").read_text(encoding="utf-8").partition("Releases: ")[2]
        line = releases([quirk for quirk in quirks() if quirk.code == code])
        if f"Releases: {written}".partition("\n\n")[0].rstrip() != line:
            wrong.append(f"{code}.md: not {line!r}")
    assert wrong == []


def test_a_quirk_that_nobody_measured_says_so() -> None:
    quirk = replace(quirks()[0], confidence="source", measured_on=())
    assert releases([quirk]) == "Releases: ort-1.15 and later. How sure: source."


def test_explain_falls_back_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_file", lambda path: False)
    assert report_pages.page("DP638") == page("DP638")
