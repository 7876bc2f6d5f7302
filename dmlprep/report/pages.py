"""Find documentation pages, which the package contains: of finding codes and of steps."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from dmlprep.core.errors import InternalError, UsageError
from dmlprep.directml.quirks import codes
from dmlprep.directml.quirks.page import page as quirk_page
from dmlprep.record import CODES


def page(code: str) -> str:
    """Return the documentation page of a finding code (such as ``DP501``) as Markdown.

    Raises:
        UsageError: there is no such code.
        InternalError: the page is missing in this installation.
    """
    if re.fullmatch(r"DP\d{3}", code) and (text := _text("codes", code)):
        return text
    if code in CODES:
        raise InternalError(f"no page of {code}", fix="install dmlprep again")
    if code in codes():  # the quirks are loaded only here, because that takes a second
        return quirk_page(code)
    from difflib import get_close_matches

    close = get_close_matches(code, codes(), 3, 0.5)
    raise UsageError(f"unknown code {code!r}", fix=f"close: {', '.join(close)}" if close else "codes look like DP501")


def step_page(name: str) -> str:
    """Return the documentation page of a step of recipes (such as ``fp16``) as Markdown.

    Raises:
        InternalError: there is no such step, or its page is missing in this installation.
    """
    text = _text("passes", name)
    if not text:
        raise InternalError(f"no page of the step {name}", fix="install dmlprep again")
    return text


def _text(folder: str, name: str) -> str:
    """Return a page of a folder of ``docs``; empty if it is missing."""
    shipped = resources.files("dmlprep.record") / "pages" / folder / f"{name}.md"
    source = Path(__file__).resolve().parents[2] / "docs" / folder / f"{name}.md"  # an editable install
    return next((file.read_text(encoding="utf-8") for file in (shipped, source) if file.is_file()), "")
