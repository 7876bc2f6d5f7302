"""Prove the best candidates as ``prepare`` proves any model, and time those that passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dmlprep.core.errors import CheckNotRun
from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import Unchanged
from dmlprep.graph.model.pinned import Value
from dmlprep.metrics import UserMetric
from dmlprep.parity import RunFeeds
from dmlprep.parity.bench import Variant, measure
from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.options import PrepareOptions
from dmlprep.pipeline.prepare import PrepareRequest, prepare
from dmlprep.pipeline.proof import missing_device
from dmlprep.pipeline.recipe import Plan, Recipe, apply_settings, load_recipe, make_plan
from dmlprep.pipeline.tuning.axes import Io
from dmlprep.pipeline.tuning.search import figures
from dmlprep.portable.arrays import Array
from dmlprep.record import RunRecord
from dmlprep.record.speed import ON_CPU, Bench
from dmlprep.record.tuning import Candidate, Tuned
from dmlprep.runtime import SessionOptions

INPUT = "input"
"""The name of the original model among the models that are timed."""


@dataclass(frozen=True)
class TuneRequest:
    """The request of one run of ``tune``.

    Attributes:
        source: the model.
        recipes: recipes to start from; all for one target.
        pins: sizes and values, as in ``make_plan``; they become part of the resulting recipe.
        io: types of graph inputs and outputs of FP16 candidates: ``keep``, ``half`` or ``any``.
        only_directml: True to try operators too that only DirectML can run.
        search_seconds: time limit of the ranking in seconds.
        prove: True to prove the best candidates; False: the ranking alone decides.
        top: largest number of candidates to prove. All of these are proved if times or a kit are requested; otherwise
            the proofs end with the first that passes.
        feeds, session: the user's feeds, and the options of sessions on DirectML.
        metric: a function that receives a plan; it returns the user's metric, or ``None`` if there is no metric.
        proof: recipe settings that apply to the proofs, but not to the resulting recipe.
        bench_seconds: total time in seconds to time the candidates that passed; ``None``: they are not timed.
    """

    source: Path
    recipes: Sequence[Recipe]
    pins: dict[str, Value] = field(default_factory=dict)
    io: Io = "keep"
    only_directml: bool = False
    search_seconds: float = 60.0
    prove: bool = True
    top: int = 3
    feeds: Sequence[dict[str, Array]] = ()
    session: SessionOptions | None = None
    metric: Callable[[Plan], UserMetric | None] = lambda plan: None
    proof: Mapping[str, object] = field(default_factory=dict)
    bench_seconds: float | None = None
    observer: Observer = field(default_factory=Observer)


@dataclass(frozen=True)
class Proved:
    """A candidate that passed the proof. The file of its prepared ``model`` exists until ``tune`` returns."""

    candidate: Candidate
    model: Path
    plan: Plan
    request: PrepareRequest


def prove(
    tuned: Tuned,
    how: TuneRequest,
    original: Model,
    files: Unchanged,
    keep: Callable[[Tuned, Sequence[Proved]], None] | None = None,
) -> Tuned:
    """Prove the best candidates; return the result with their outcomes, and with times on request.

    Without times and without ``keep``, the proofs end when the best candidate by rank has passed. A proved model may
    have worse figures than predicted, which changes the rank.

    Args:
        tuned: the result of the ranking.
        how: the request of the run.
        original: the original model.
        files: the watcher of the original's files.
        keep: called at the end with the result and the candidates that passed; not called if none passed.

    Raises:
        InputError: the original was changed meanwhile; then ``keep`` is not called.
    """
    every = how.bench_seconds is not None or keep is not None
    candidates = {one.name: one for one in tuned.candidates}
    passed: dict[str, Proved] = {}
    with temporary_folder("tune") as folder:
        for number in range(1, how.top + 1):
            able = [one for one in _ordered(candidates.values()) if one.figures is not None and one.figures.runs]
            eligible = [one for one in able if one.proof in ("", "passed")]
            waiting = [one for one in eligible if not one.proof]
            if not waiting or (eligible[0].proof and not every):
                break
            name = waiting[0].name
            how.observer.notice(f"candidate {number}: {name}")
            candidates[name], proved = _prove(waiting[0], how, Path(folder) / str(number))
            if proved is not None:
                passed[name] = proved
        tuned = replace(tuned, candidates=tuple(_ordered(candidates.values())))
        best = [passed[one.name] for one in tuned.candidates if one.name in passed]
        if how.bench_seconds is not None and best:
            tuned = _timed(tuned, best, how, original)
        files.check()  # before a kit appears
        if keep is not None and best:
            keep(tuned, best)
    return tuned


def _ordered(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates sorted by rank: the best first, those that a step refuses last."""
    return sorted(candidates, key=lambda one: (one.figures is None, one.figures.rank if one.figures else ()))


def _prove(one: Candidate, how: TuneRequest, out: Path) -> tuple[Candidate, Proved | None]:
    """Prepare and prove a candidate as ``prepare`` does, in the folder ``out``.

    Returns:
        the candidate with the outcome of its proof and the figures of the prepared model; and its files, ``None`` if it
        did not pass.
    """
    path = out.with_suffix(".toml")
    path.write_text(one.recipe, encoding="utf-8")
    plan = make_plan(apply_settings(load_recipe(str(path)), how.proof))
    # Fresh: a choice, and kits that are sent away, need a present measurement.
    options = PrepareOptions(fresh=True)
    request = PrepareRequest(
        how.source, out, plan, options, how.feeds, how.session, how.metric(plan), observer=how.observer
    )
    record = prepare(request)
    if record.exit_code:
        return replace(one, proof=_outcome(record), reason=str(record.error or "")), None
    model_figures, _ = figures(Model.open(Path(record.output)), plan.target)
    by = dict.fromkeys(v.device.name for v in record.verdicts if v.outcome == "passed" and v.device is not None)
    candidate = replace(one, proof="passed", figures=model_figures, devices=tuple(by))
    return candidate, Proved(candidate, Path(record.output), plan, request)


def _outcome(record: RunRecord) -> Any:
    """Return the outcome of the verdict that kept the result from being written.

    Without such a verdict: ``failed`` if a step refused the model, otherwise ``not-run``.
    """
    deciding = (v.outcome for v in record.verdicts if v.decides and v.exit_code == record.exit_code)
    return next(deciding, "failed" if record.exit_code == 1 else "not-run")


def _timed(tuned: Tuned, best: Sequence[Proved], how: TuneRequest, original: Model) -> Tuned:
    """Return the result with the times of the candidates that passed, and of the original model.

    If the measurement is not possible, the result has the reason instead; no error is raised.
    """
    first = best[0]
    parity = first.plan.recipe.parity
    session = replace(first.request.on_target, time_limit=parity.time_limit)
    on_dml = parity.dml != "off" and not missing_device(session)
    opened = [(one.candidate.name, Model.open(one.model), one.model) for one in best]
    variants = [Variant(INPUT, original, how.source), *(Variant(*one, shown=one[0]) for one in opened)]
    how.observer.check_started("bench")
    try:
        feeds = RunFeeds(original, how.feeds, parity.sizes, values=first.plan.values)
        feed = feeds.of(opened[0][1], 1)[0]
        bench = measure(
            variants,
            "dml" if on_dml else "cpu",
            feed,
            session=session,
            inputs=feeds.source if feed else "",
            seconds=how.bench_seconds or 0.0,
            progress=how.observer.step_progress,
        )
    except CheckNotRun as error:
        bench = Bench("", (), note=f"not measured: {error}")
    how.observer.measured(bench)
    if not on_dml and not bench.note:
        bench = replace(bench, note=ON_CPU)
    ratios = {row.name: row.ratio for row in bench.models}
    with_times = tuple(replace(one, time=ratios.get(one.name)) for one in tuned.candidates)
    return replace(tuned, candidates=with_times, bench=bench)
