"""Time the original model, the original with fixed sizes, and the result, in turns (``prepare --bench``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dmlprep.core.errors import CheckNotRun
from dmlprep.graph.model import Model
from dmlprep.parity import RunFeeds
from dmlprep.parity.bench import Variant, measure, overridden_like
from dmlprep.passes.framing import between
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.record.speed import Bench, Timed
from dmlprep.runtime import SessionOptions


def time_prepared(
    original: Model,
    prepared: Path,
    feeds: RunFeeds,
    *,
    device: SessionDevice,
    session: SessionOptions,
    seconds: float,
    shown: Path,
    progress: Progress = lambda share, text: None,
) -> Bench:
    """Time a proved model, its original, and the original with the sizes that the proved model fixes.

    The result is information: for a model that does not run it has the reason, and no error is raised.

    Args:
        original: the model as opened from its file.
        prepared: file of the proved model, in a temporary folder.
        feeds: the feeds of the run, of which the first is used.
        seconds: total time in seconds for the timed runs of all three models.
        shown: the final path of the proved model, which the result names.
    """
    source = original.path or Path()
    result = Model.open(prepared)
    variants = [
        Variant("input", original, source, frame=between(original.ir, result.ir)),
        overridden_like(original, result, source, "input, sizes overridden"),
        Variant("result", result, prepared, shown=str(shown)),
    ]
    try:
        feed = feeds.of(result, 1)[0]
        bench = measure(
            variants,
            device,
            feed,
            session=session,
            inputs=feeds.source if feed else "",
            seconds=seconds,
            progress=progress,
        )
    except CheckNotRun as error:
        rows = (Timed(one.name, one.shown or str(one.path), one.sizes, not_run=str(error)) for one in variants)
        return Bench("", tuple(rows))
    # Replace the staging folder, which is deleted before anyone reads the record.
    models = tuple(replace(one, not_run=one.not_run.replace(str(prepared), str(shown))) for one in bench.models)
    return replace(bench, models=models)
