"""Time model files, for ``dmlprep bench``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmlprep.core._version import __version__
from dmlprep.core.errors import UsageError
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import Unchanged
from dmlprep.graph.model.pinned import pinned_values
from dmlprep.parity import RunFeeds, load_feeds
from dmlprep.parity.bench.measuring import Variant, measure, overrides
from dmlprep.parity.feeds.sizes import graph_inputs
from dmlprep.portable.arrays import Array
from dmlprep.record import RunError, RunRecord
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.record.origin import origin
from dmlprep.record.run_record import RunFacts
from dmlprep.record.speed import Bench
from dmlprep.runtime import SessionOptions

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class BenchRequest:
    """A request to time models.

    Attributes:
        models: at least one; a model may be listed several times.
        feeds: the user's feeds, of which the first is used; if empty, a seeded one.
        session: options of all sessions.
        pins: sizes of free dimensions that the sessions fix, by dimension or by ``input:axis``; seeded feeds have them
            too.
        sizes: sizes of free dimensions in seeded feeds.
        seconds: total time in seconds for the timed runs of all models.
        runs: smallest number of timed runs for each model.
    """

    models: Sequence[Path]
    feeds: Sequence[str | Path | Arrays] = ()
    device: SessionDevice = "cpu"
    session: SessionOptions = field(default_factory=SessionOptions)
    pins: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 10.0
    runs: int = 10
    progress: Progress = field(default=lambda share, text: None)


def bench(request: BenchRequest) -> Bench:
    """Time models in turns on the same inputs, and return their times.

    A model that does not load or run has the reason in the result; no error is raised.

    Raises:
        InputError: a model or feed cannot be read or does not fit, a size is for a dimension that no model has, or a
            model was changed meanwhile.
        UsageError: there is no model, or the seeded feed is too large.
        CheckNotRun: no feed can be generated for an input, or the device is not available.
        ModelRefused, ToolFailed: as ``Model.open``.
    """
    if not request.models:
        raise UsageError("no model to measure", fix="dmlprep bench MODEL [MODEL ...]")
    files = Unchanged(contents=False)
    opened = {path: files.take_model(path) for path in dict.fromkeys(request.models)}
    models = list(opened.values())
    user_feeds = load_feeds(request.feeds)
    # The model with the most inputs and free sizes: the others were prepared from it, and may lack some of them.
    original = max(models, key=_freedom)
    # A size that is fixed in one model applies to all of them.
    like = min(models, key=_freedom)
    values = pinned_values(like.ir, original.ir.graph.inputs)
    feeds = RunFeeds(original, user_feeds, {**request.sizes, **request.pins}, values=values)
    feed = feeds.of(like, 1)[0]
    variants = [
        Variant(name, opened[path], path, overrides(opened[path], request.pins))
        for name, path in zip(_names(request.models), request.models, strict=True)
    ]
    result = measure(
        variants,
        request.device,
        feed,
        session=request.session,
        inputs=feeds.source if feed else "",
        seconds=request.seconds,
        runs=request.runs,
        progress=request.progress,
    )
    files.check()
    return result


def _freedom(model: Model) -> tuple[int, int]:
    """Return the number of a model's inputs, and the number of their free dimensions."""
    inputs = graph_inputs(model)
    return len(inputs), sum(not isinstance(dim, int) for one in inputs for dim in one.dims or ())


def _names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each model: its file name, or its path if several files have that name.

    A file that is listed again has a number after its name.
    """
    files = Counter(path.name for path in dict.fromkeys(paths))
    again: Counter[Path] = Counter()
    names = []
    for path in paths:
        again[path] += 1
        name = path.name if files[path.name] == 1 else str(path)
        names.append(name if again[path] == 1 else f"{name} ({again[path]})")
    return names


def bench_record(measurement: Bench, *, command_line: str = "") -> RunRecord:
    """Return the times of models, measured just now, as the record of a run, which ``render_record`` renders."""
    failing = next((one for one in measurement.models if one.not_run), None)
    return RunRecord(
        command="bench",
        input=", ".join(dict.fromkeys(one.path for one in measurement.models)),
        version=__version__,
        exit_code=measurement.exit_code,
        seconds=measurement.seconds,
        facts=RunFacts(origin=origin(command_line), bench=measurement),
        error=RunError(f"{failing.name} did not run: {failing.not_run}") if failing is not None else None,
    )
