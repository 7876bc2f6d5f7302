"""Find the recipe that suits a model best, on this machine or with a kit on another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from dmlprep.api.preparing import start_worker, user_metric
from dmlprep.core.errors import OutputError, UsageError
from dmlprep.core.files import user_path
from dmlprep.pipeline.options import Feeds, Metric, Session, SessionKeywords

if TYPE_CHECKING:
    from dmlprep.graph.model.pinned import Value
    from dmlprep.pipeline.observer import Observer
    from dmlprep.pipeline.tuning import Proved
    from dmlprep.record.tuning import Tuned


def tune(
    path: str | Path,
    *,
    recipes: Sequence[str | Path] | None = None,
    pins: Mapping[str, Value] | None = None,
    target: str | None = None,
    settings: Mapping[str, object] | None = None,
    io: Literal["keep", "half", "any"] = "keep",
    only_directml: bool = False,
    offline: bool = False,
    search_seconds: float = 60.0,
    top: int = 3,
    feeds: Feeds = (),
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    bench: bool = False,
    bench_seconds: float = 10.0,
    out: str | Path | None = None,
    kit: str | Path | None = None,
    key: str | Path | None = None,
    force: bool = False,
    observer: Observer | None = None,
    **where: Unpack[SessionKeywords],
) -> Tuned:
    """Find the recipe that suits a model best: rank candidates by placement, prove the best, and time them on request.

    A candidate is a recipe with changed settings. docs/tune.md describes the search.

    Args:
        path: the model.
        recipes: recipes to start from; the search does not change settings that they contain. ``None``:
            ``@static-fp32``, and the recipe that ``init_project`` would choose, or ``@vision-fp16`` if they are equal.
        pins, target, settings: as in ``plan``; the resulting recipe contains the pins. A setting needs to fit only
            one of the ``recipes``; for the others it has no effect.
        io: element types of graph inputs and outputs of FP16 candidates: ``keep``, ``half`` (FP16), or ``any`` to try
            both.
        only_directml: True to try operators too that the CPU provider cannot run (GroupNorm).
        offline: True to rank by placement alone, and prove nothing.
        search_seconds: time limit for the ranking, in seconds.
        top: largest number of candidates to prove. The best that passes wins; without ``bench`` and ``kit``, no more
            are proved then.
        feeds, metric, metric_bound: as in ``compare``.
        bench: True to time the model and the ``top`` candidates that pass. Times on a GPU then decide; times of a
            device that computes on the CPU do not.
        bench_seconds: total time for the timed runs, in seconds.
        out, force: file for the best recipe, ``None`` for no file; and whether to replace it and ``kit``.
        kit: path of a kit (zip) with the ``top`` candidates that pass, to time them on a Windows machine
            (``choose_kit``).
        key: file of the private key that seals the kit, as in ``pack_kit``.
        observer: as in ``prepare``.
        where: the device, as the fields of ``Session``: ``device``, ``require_dml``, ``device_id``, ``adapter`` or
            ``gpu``.

    Returns:
        the ``candidates``, best first, and the name of the ``chosen`` one; ``recipe`` is its TOML text. ``exit_code``
        is 0 if one is chosen; 1 if no candidate is good; 3 if a required check did not run or proved nothing.

    Raises:
        UsageError: the model, a recipe, a setting or an output is wrong, or ``kit`` is combined with ``offline``.
        CheckNotRun: DirectML is required but not available, or no GPU matches ``gpu``.
        ModelRefused, ToolFailed: the model is not supported, exceeds a safety limit, or crashes onnx.
    """
    start_worker()
    from dmlprep.core.files import check_output
    from dmlprep.core.files.writing import write_file
    from dmlprep.parity import load_feeds
    from dmlprep.pipeline.observer import Observer
    from dmlprep.pipeline.tuning import TuneRequest, base_recipes, usual_recipes
    from dmlprep.pipeline.tuning import tune as run

    for written in (out, kit):
        if written is not None:
            check_output(user_path(written, OutputError), force=force)
    if kit is not None and offline:
        raise UsageError("kit needs a proof, which offline skips", where="kit, offline", fix="remove one of the two")
    session = Session(**where)
    proof = session.proof
    starts = usual_recipes(user_path(path)) if recipes is None else list(map(str, recipes))
    result = run(
        TuneRequest(
            user_path(path),
            base_recipes(starts, target, settings),
            dict(pins or {}),
            io,
            only_directml,
            search_seconds,
            not offline,
            top,
            load_feeds(feeds),
            session.resolve(session.device),
            lambda plan: user_metric(metric, metric_bound, plan, observer),
            proof,
            bench_seconds if bench else None,
            observer or Observer(),
        ),
        None
        if kit is None
        else lambda known, proved: _pack_candidates(known, proved, user_path(kit), bench_seconds, key, force),
    )
    if out is not None and result.chosen:
        write_file(user_path(out, OutputError), result.recipe.encode(), force=force)
    return result


def _pack_candidates(
    known: Tuned, proved: Sequence[Proved], out: Path, bench_seconds: float, key: str | Path | None, force: bool
) -> None:
    """Write the candidates that passed the proof into one kit, at the path ``out``, to time them on another machine."""
    import dataclasses

    from dmlprep.kit import KitRequest, pack

    first = proved[0]
    parity = first.plan.recipe.parity
    pack(
        KitRequest(
            model=first.model,
            out=out,
            reference=first.request.source,
            feeds=first.request.feeds,
            tolerance=parity.tolerance,
            sizes=parity.sizes,
            seeds=parity.seeds,
            metric=parity.metric,
            measures=parity.measures,
            key=user_path(key) if key is not None else None,
            force=force,
            candidates={one.candidate.name: one.model for one in proved},
            tuned=dataclasses.replace(known, model=Path(known.model).name, bench=None, searched_seconds=0.0),
            bench_seconds=bench_seconds,
        )
    )


def choose_kit(
    result: str | Path,
    *,
    kit: str | Path,
    out: str | Path | None = None,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    key: str | Path | None = None,
    force: bool = False,
) -> Tuned:
    """Choose among the candidates in a kit of ``tune``, by the result from a Windows machine (docs/tune.md).

    Args:
        result, kit, metric, metric_bound, key: as in ``verify_kit``.
        out, force: file for the chosen recipe, ``None`` for no file; and whether to replace it.

    Returns:
        the same kind of result as from ``tune``: each candidate with its verdict and its time on that machine.
        ``exit_code`` is 0 if one is chosen; 3 if none is, and one did not run or proved nothing; 1 if all failed.

    Raises:
        InputError, UsageError: as in ``verify_kit``, or the kit has no candidates.
        OutputError: ``out`` exists and ``force`` is False, or cannot be written.
    """
    from dmlprep.core.files import check_output
    from dmlprep.core.files.writing import write_file
    from dmlprep.kit import choose_candidate

    if out is not None:
        check_output(user_path(out, OutputError), force=force)
    own = user_path(key) if key is not None else None
    choice = choose_candidate(user_path(result), user_path(kit), user_metric(metric, metric_bound), own)
    if out is not None and choice.chosen:
        write_file(user_path(out, OutputError), choice.recipe.encode(), force=force)
    return choice
