"""Runs models for passes that need values, in child processes, with the user's feeds or seeded ones."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlprep.errors import ModelRefused
from dmlprep.model import Model

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CpuRunner"]


class CpuRunner:
    """The ``Runner`` that the pipeline hands to passes.

    Args:
        feeds_given: feeds from the user; seeded ones are made per model where this is empty.
        sizes: sizes for dimensions that are free.
        time_limit: seconds for one load or run.
    """

    def __init__(
        self,
        feeds_given: Sequence[Mapping[str, np.ndarray[Any, Any]]] = (),
        sizes: Mapping[str, int] | None = None,
        time_limit: float = 600.0,
    ) -> None:
        self._given = [dict(f) for f in feeds_given]
        self._sizes = dict(sizes or {})
        self._time_limit = time_limit

    def run(
        self, model: Model, feeds: Mapping[str, np.ndarray[Any, Any]], outputs: Sequence[str] | None = None
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Run ``model`` on the CPU, its weights left where they are.

        Raises:
            ModelRefused: it does not load or run, or its child process died.
        """
        from dmlprep.runtime import DATA_FOLDER, SessionFailure, SessionOptions, open_cpu

        with tempfile.TemporaryDirectory(prefix="dmlprep-") as folder:
            path = Path(folder) / "model.onnx"
            data = model.save_linked(path)
            options = SessionOptions(time_limit=self._time_limit, config={DATA_FOLDER: str(data)})
            try:
                with open_cpu(path, options) as session:
                    return session.run(feeds, outputs)
            except SessionFailure as failure:
                raise ModelRefused(f"the model does not run on the CPU: {failure}", code="DP704") from failure

    def feeds(self, model: Model, count: int = 1) -> list[dict[str, np.ndarray[Any, Any]]]:
        """The user's feeds, or ``count`` seeded ones."""
        from dmlprep.parity import make_feeds

        if self._given:
            return self._given[:count]
        return make_feeds(model, sizes=self._sizes, count=count)
