"""OptionalHasElement without an input crashes."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the constant false."""
    return edit.become(edit.constant(np.array(False), "false"))


QUIRK = Quirk(
    id="optional-without-input",
    code="DP612",
    title="OptionalHasElement without input",
    severity="warning",
    ops=("OptionalHasElement",),
    outcome="crash",
    sources=(MEASURED,),
    matches=lambda node: "" if node.input(0) is not None else "no input",
    rewrite=_rewrite,
)
