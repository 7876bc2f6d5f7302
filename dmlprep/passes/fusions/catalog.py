"""The list of all fused forms: operators of com.microsoft, and the nodes that they can replace."""

from __future__ import annotations

from dmlprep.passes.fusions.attention import ATTENTION, GROUPED
from dmlprep.passes.fusions.form import Form
from dmlprep.passes.fusions.norms import GROUP_NORM, SKIP_NORM
from dmlprep.passes.fusions.rotary import ROTARY

FORMS: tuple[Form, ...] = (GROUP_NORM, ROTARY, SKIP_NORM, GROUPED, ATTENTION)
"""All fused forms. Where two forms match the same nodes, the first one gets them."""
