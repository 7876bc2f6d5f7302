"""What a quirk says of its code where nobody has written a page, and the line that both have."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dmlprep.quirks import code_row, quirks
from dmlprep.quirks.page import page, releases
from dmlprep.report import pages as report_pages

PAGES = Path(__file__).resolve().parents[2] / "docs" / "codes"
CODES = sorted({quirk.code for quirk in quirks()})


@pytest.mark.parametrize("code", CODES)
def test_it_has_the_sections_of_a_page(code: str) -> None:
    text = page(code)
    assert text.startswith(f"# {code}: {code_row(code).title}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["What", "Why", "How to fix", "Source"]
    assert all(body.strip() for body in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:])
    assert "None" not in text


@pytest.mark.parametrize("code", [code for code in CODES if (PAGES / f"{code}.md").exists()])
def test_a_page_that_somebody_wrote_names_the_same_releases(code: str) -> None:
    written = (PAGES / f"{code}.md").read_text(encoding="utf-8").partition("Releases: ")[2]
    if written:
        line = releases([quirk for quirk in quirks() if quirk.code == code])
        assert f"Releases: {written}".partition("\n\n")[0] == line


def test_a_quirk_that_nobody_measured_says_so() -> None:
    quirk = replace(quirks()[0], confidence="source", measured_on=())
    assert releases([quirk]) == "Releases: ort-1.15 and later. How sure: source."


def test_explain_falls_back_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_file", lambda path: False)
    assert report_pages.page("DP638") == page("DP638")
