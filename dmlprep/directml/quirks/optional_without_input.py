"""OptionalHasElement without an input crashes."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    return "" if node.input(0) is not None else "no input"


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
    matches=_matches,
    rewrite=_rewrite,
)
