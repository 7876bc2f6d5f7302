"""What the user says of how outputs are judged, beside the tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dmlprep.core.errors import InputError
from dmlprep.graph.model import Model
from dmlprep.metrics import UserMetric

MeasureNoise = Literal["auto", "always", "off"]


@dataclass(frozen=True)
class JudgingOptions:
    """How outputs are judged.

    Attributes:
        measures: outputs that are another kind than their makers tell, see ``metrics.output_groups``.
        noise: whether the original's own noise is measured: ``auto`` where it runs within some seconds.
        metric: the user's function, which decides in place of the tolerance.
    """

    measures: Mapping[str, str] = field(default_factory=dict)
    noise: MeasureNoise = "auto"
    metric: UserMetric | None = None

    def check(self, model: Model) -> None:
        """Raise ``InputError`` where the model does not have an output that is named."""
        known = [value.name or "" for value in model.ir.graph.outputs]
        for name in self.measures:
            if name not in known:
                raise InputError(
                    f"there is no output {name!r} to measure",
                    where=str(model.path or ""),
                    fix=f"it has: {', '.join(known)}",
                )
