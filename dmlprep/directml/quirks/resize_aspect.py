"""Resize with a keep_aspect_ratio_policy."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    return f"keep_aspect_ratio_policy {policy}" if policy != "stretch" else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the scales that the policy means, where they give the same sizes."""
    x, sizes = facts.required(), facts.integers(3)
    if sizes is None or x.shape is None:
        return "its sizes are not constant, or its rank is not known"
    rank = len(x.shape)
    axes = [a + rank if a < 0 else a for a in facts.attribute("axes", list(range(rank)))]
    known = [d for d in (x.shape[a] for a in axes) if isinstance(d, int) and d > 0]
    if len(known) != len(axes) or len(sizes) != len(axes):
        return "the sizes of its input are not known"
    ratios = [np.float32(s) / np.float32(d) for s, d in zip(sizes, known, strict=True)]
    scale = min(ratios) if facts.attribute("keep_aspect_ratio_policy") == "not_larger" else max(ratios)
    wanted = [int(np.floor(np.float32(scale * np.float32(d)) + np.float32(0.5))) for d in known]
    if wanted != [int(np.floor(np.float32(scale * np.float32(d)))) for d in known]:
        return "no scale gives the sizes that the policy rounds to"
    edit.set_input(3, None)
    edit.set_input(2, edit.constant(np.full(len(axes), scale, np.float32), "scales"))
    edit.node.resize_inputs(3)
    edit.drop("keep_aspect_ratio_policy")
    return ""


QUIRK = Quirk(
    id="resize-aspect",
    code="DP610",
    title="Resize that keeps the aspect ratio",
    ops=("Resize",),
    outcome="run fails",
    first="1.19",
    matches=_matches,
    rewrite=_rewrite,
)
