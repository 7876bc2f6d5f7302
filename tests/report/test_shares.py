"""Shares as people read them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dmlprep.portable.shares import percent, rounded_share

PACKAGE = Path(__file__).resolve().parents[2] / "dmlprep"


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (1, 1, "100 %"),
        (0, 1, "0 %"),
        (15 / 16, 1, "93.8 %"),
        (0.99999, 1, "99.9 %"),
        (0.99999, 0, "99 %"),
        (1e-9, 1, "0.1 %"),
        (1e-9, 2, "0.01 %"),
        (0.996, 0, "99 %"),
        (0.5, 0, "50 %"),
    ],
)
def test_percent(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text


def test_rounded_shares_reach_the_ends_only_there() -> None:
    assert rounded_share(24_999 / 25_000) == 0.9999
    assert rounded_share(1e-7) == 0.0001
    assert (rounded_share(0), rounded_share(1), rounded_share(0.12341)) == (0, 1, 0.1234)


def test_every_percentage_is_written_by_this_function() -> None:
    by_hand = re.compile(r":[\d.]*%\}|100 \* |\* 100\b")
    written = {
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.jinja"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if by_hand.search(line) and path.name != "shares.py"
    }
    assert written == set()
