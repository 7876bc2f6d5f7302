"""The page of a quirk's finding code, from the quirk's declaration."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from dmlprep.directml.quirks.catalog import code_row, quirks
from dmlprep.directml.quirks.quirk import Quirk


def page(code: str) -> str:
    """Return the Markdown page of a code that has no page in ``docs/codes``.

    Raises:
        KeyError: there is no such code.
    """
    same_code = [quirk for quirk in quirks() if quirk.code == code]
    row = code_row(code)
    sources = dict.fromkeys(source for q in same_code for source in q.sources)
    sections = {
        "What": [
            _docstring(sys.modules[q.matches.__module__]) + (f" Operators: {', '.join(q.ops)}." if q.ops else "")
            for q in same_code
        ],
        "Why": [f"On DirectML: {q.effect}." for q in same_code],
        "How to fix": [f"`fix-quirks`: {_docstring(q.rewrite)}" if q.rewrite else f"{row.remedy}." for q in same_code],
        "Source": [releases(same_code), "\n".join(f"* {source}" for source in sources)],
    }
    bodies = [f"\n## {name}\n" + "\n\n".join(dict.fromkeys(texts)) + "\n" for name, texts in sections.items()]
    return f"# {code}: {row.title}\n" + "".join(bodies)


def _docstring(documented: object) -> str:
    return textwrap.dedent((documented.__doc__ or "").strip())


def releases(same_code: Sequence[Quirk]) -> str:
    """Return the affected releases, and how this was measured, as text for a page; the quirks have one code."""
    spans = [f"ort-{q.first} and later" if q.last is None else f"ort-{q.first} to ort-{q.last}" for q in same_code]
    if len({q.outcome for q in same_code}) > 1:
        spans = [f"{span} ({quirk.outcome})" for span, quirk in zip(spans, same_code, strict=True)]
    versions = sorted({m for q in same_code for m in q.measured_on}, key=lambda m: [int(n) for n in m.split(".")])
    doubt = " The CPU driver may be the cause." if any(q.confidence == "environment" for q in same_code) else ""
    few = ", ".join(versions) if len(versions) < 3 else f"{len(versions)} releases, {versions[0]} to {versions[-1]}"
    known = f"Measured on {few}.{doubt}" if versions else f"How sure: {same_code[0].confidence}."
    line = f"Releases: {'; '.join(dict.fromkeys(spans))}. {known}"
    return textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False)
