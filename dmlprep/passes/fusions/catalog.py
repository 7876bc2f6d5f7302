"""Every fused form, by its name in the options of the step ``fuse``."""

from __future__ import annotations

from dmlprep.passes.fusions.attention import ATTENTION, GROUPED
from dmlprep.passes.fusions.form import Form
from dmlprep.passes.fusions.norms import GROUP_NORM, SKIP_NORM
from dmlprep.passes.fusions.rotary import ROTARY

FORMS: tuple[Form, ...] = (GROUP_NORM, ROTARY, SKIP_NORM, GROUPED, ATTENTION)
"""The order matters: where two forms match the same nodes, the first one gets them."""
