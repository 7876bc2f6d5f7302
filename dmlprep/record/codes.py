"""The table of finding codes, each with a page in ``docs/codes``. ``dmlprep.directml.quirks.codes`` adds the quirks'.

Hundreds: 0 the model file, 1 opset, 2 dimensions, 3 simplify, 4 precision, 5 placement, 6 quirks, 7 parity, 8 runtime,
packages and folders of genai, 9 recipe. A code is never reused for another meaning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec


class Code(NamedTuple):
    """Title of a few words, severity by default, general remedy."""

    title: str
    severity: Literal["note", "warning", "error"]
    remedy: str = ""


CODES = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=dict[str, Code])
