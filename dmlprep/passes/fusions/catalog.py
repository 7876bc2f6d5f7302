"""Every fused form, by the name that the options of the step ``fuse`` have for it."""

from __future__ import annotations

from dmlprep.passes.fusions.attention import ATTENTION, GROUPED
from dmlprep.passes.fusions.form import Form
from dmlprep.passes.fusions.norms import GROUP_NORM, SKIP_NORM
from dmlprep.passes.fusions.rotary import ROTARY

FORMS: tuple[Form, ...] = (GROUP_NORM, ROTARY, SKIP_NORM, GROUPED, ATTENTION)
"""Where two take the same nodes, the first of them gets them."""
