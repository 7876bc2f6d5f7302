"""Find the documentation page of a finding code: from ``docs/codes``, which the package contains, or of a quirk."""

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
    if re.fullmatch(r"DP\d{3}", code):
        shipped = resources.files("dmlprep.record") / "pages" / f"{code}.md"
        if shipped.is_file():
            return shipped.read_text(encoding="utf-8")
        source = Path(__file__).resolve().parents[2] / "docs" / "codes" / f"{code}.md"  # an editable install
        if source.is_file():
            return source.read_text(encoding="utf-8")
    if code in CODES:
        raise InternalError(f"no page of {code}", fix="install dmlprep again")
    if code in codes():  # the quirks are loaded only here, because that takes a second
        return quirk_page(code)
    from difflib import get_close_matches

    close = get_close_matches(code, codes(), 3, 0.5)
    raise UsageError(f"unknown code {code!r}", fix=f"close: {', '.join(close)}" if close else "codes look like DP501")
