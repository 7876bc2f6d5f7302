"""Who runs models for those that need values and open no sessions themselves: the pipeline hands one in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dmlprep.graph.model.model import Model
    from dmlprep.portable.arrays import Array


class Runner(Protocol):
    """Runs models for passes that need values (range profile, island search, the guard of simplify)."""

    def run(
        self,
        model: Model,
        feeds: Mapping[str, Array],
        outputs: Sequence[str] | None = None,
        *,
        optimized: bool = True,
    ) -> dict[str, Array]:
        """Run ``model`` on the CPU at FP32, with graph optimisation as it is by default, or with none.

        Raises:
            ModelRefused: the model does not load or run, or its child process died.
        """
        ...

    def feeds(self, model: Model, count: int = 1) -> list[dict[str, Array]]:
        """Feeds for the model's inputs: the user's, or seeded ones."""
        ...
