"""The interface through which passes run a model without opening sessions themselves; the pipeline implements it."""

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
        """Run ``model`` on the CPU, and return its outputs by name; with ``outputs``, only these.

        ``optimized``: with the default graph optimization; False for none.

        Raises:
            ModelRefused: the model does not load or run, or its child process died.
            CheckNotRun: the model needs more memory or time than its limits.
        """
        ...

    def feeds(self, model: Model, count: int = 1) -> list[dict[str, Array]]:
        """Return at most ``count`` of the user's feeds (input name -> array), or ``count`` random ones (fixed seed)."""
        ...
