"""Every fused form, by the name that the options of the step ``fuse`` have for it."""

from __future__ import annotations

from dmlprep.fused.attention import ATTENTION
from dmlprep.fused.form import Form
from dmlprep.fused.group_norm import GROUP_NORM
from dmlprep.fused.grouped import GROUPED
from dmlprep.fused.rotary import ROTARY
from dmlprep.fused.skip_norm import SKIP_NORM

__all__ = ["FORMS"]

FORMS: tuple[Form, ...] = (GROUP_NORM, ROTARY, SKIP_NORM, GROUPED, ATTENTION)
"""Where two take the same nodes, the first of them gets them."""
