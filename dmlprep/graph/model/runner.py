"""The interface that runs models for code that needs values and opens no sessions: the pipeline implements it."""

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
        """Run ``model`` on the CPU at FP32, with the default graph optimisation, or with none.

        Raises:
            ModelRefused: the model does not load or run, or its child process died.
        """
        ...

    def feeds(self, model: Model, count: int = 1) -> list[dict[str, Array]]:
        """Return feeds for the model's inputs: the user's, or seeded ones."""
        ...
