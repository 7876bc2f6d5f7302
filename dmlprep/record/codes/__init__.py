"""The table of finding codes. Each has a page in ``docs/codes``; a test holds the two together.

Each quirk of DirectML declares its code itself; ``dmlprep.quirks.codes`` has this table and those.

One file a hundred: 0 the model file, 1 opset, 2 dimensions, 3 simplify, 4 precision, 5 placement, 6 quirks, 7 parity,
8 runtime, packages and folders of genai, 9 recipe. A code is never reused for another meaning.
"""

from __future__ import annotations

from dmlprep.record.codes import (
    dimensions,
    genai,
    generation,
    modelfile,
    opset,
    parity,
    placement,
    precision,
    quirks,
    recipe,
    runtime,
    simplify,
)
from dmlprep.record.codes.row import Code

__all__ = ["CODES", "Code"]

CODES: dict[str, Code] = {
    code: row
    for part in (
        modelfile,
        opset,
        dimensions,
        simplify,
        precision,
        placement,
        quirks,
        parity,
        runtime,
        genai,
        generation,
        recipe,
    )
    for code, row in part.ROWS.items()
}
