"""Write docs/opset.md: every ai.onnx operator that the installed onnx changed after opset 11, and how it is handled.

python scripts/opset_table.py           write the page
python scripts/opset_table.py --check   exit 1 if the page is out of date, or a change is not handled
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

from dmlprep.graph.analysis.schemas import NEWEST, schema_at, since_versions
from dmlprep.passes.opset.contrib import CONTRIB
from dmlprep.passes.opset.handling import OLDEST, REFUSED, STEPS, handling_of, relabels_upward, unhandled

PAGE = Path(__file__).resolve().parent.parent / "docs" / "opset.md"

_HEAD = """# Opsets: how every operator is lowered

Written by `scripts/opset_table.py` from the schemas of onnx {version} (newest opset {newest}); do not edit.

A node is lowered version by version of its operator. **relabel**: the older version accepts the node as it is (checked:
attributes, inputs, types; where only a type is missing, the node computes in a wider one) and it computes the same.
**rewrite**: the rule in the next column replaces or edits the node. **body**: ONNX's own function body replaces the
node, and is lowered in turn. **refuse**: there is no equal form, and the error DP102 names the node. In the column
"up", **same** means that a node of the version before means the same at this version; **converter** means that onnx's
converter raises it. [Lower one more operator](lower-one-more-operator.md) says how to change this list.

| opset | operator | down | how | up |
|---|---|---|---|---|
"""


def _how(name: str, since: int) -> tuple[str, str]:
    handling = handling_of(name, since)
    if handling == "refuse":
        return "refuse", REFUSED[name, since]
    if handling == "step":
        doc = (STEPS[name, since].__doc__ or "").strip().splitlines()
        return "rewrite", doc[0].rstrip(".") if doc else "attributes at their defaults are dropped"
    return ("body", "") if handling == "body" else (handling, "")


def page() -> str:
    """Return the page's text."""
    rows = []
    history = since_versions()
    for opset in range(NEWEST, OLDEST, -1):
        for name, versions in history.items():
            if opset not in versions or schema_at(name, opset) is None:
                continue
            down, how = _how(name, opset)
            new = "new; " if versions[0] == opset else ""
            up = "" if versions[0] == opset else "same" if relabels_upward(name, opset) else "converter"
            rows.append(
                f"| {opset} | {name} | {down} | {new}{how} | {up} |".replace("new;  ", "new ").replace("; |", " |")
            )
    head = _HEAD.format(version=onnx.__version__, newest=NEWEST)
    contrib = (
        "\n## With `prefer_contrib`\n\nTaken in the place of these, where their attributes allow it: "
        + ", ".join(f"`{name}`" for name in sorted(CONTRIB))
    )
    return head + "\n".join(rows) + "\n" + contrib + ".\n"


def main() -> int:
    """Write or check the page."""
    missing = unhandled()
    for change in missing:
        print(f"not handled: {change}", file=sys.stderr)
    if "--check" in sys.argv:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        if not same:
            print(f"{PAGE.name} is out of date: run scripts/opset_table.py", file=sys.stderr)
        return 0 if same and not missing else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
