"""Try a model on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dmlprep.api.arguments import Progress, user_metric
from dmlprep.options import Feeds, Metric
from dmlprep.record import Verdict

if TYPE_CHECKING:
    from dmlprep.kit import Packed

__all__ = ["pack_kit", "verify_kit"]


def pack_kit(
    path: str | Path,
    *,
    out: str | Path,
    reference: str | Path | None = None,
    feeds: Feeds = (),
    tolerance: str = "",
    sizes: Mapping[str, int] | None = None,
    seeds: int | None = None,
    session: Mapping[str, str] | None = None,
    warm_up: int = 1,
    runs: int = 5,
    time_limit: float = 1800.0,
    measures: Mapping[str, str] | None = None,
    metric: str = "",
    key: str | Path | None = None,
    force: bool = False,
    progress: Progress = lambda share, text: None,
) -> Packed:
    """Pack a model with feeds, expected outputs and a runner, to try it on a Windows machine (docs/kit.md).

    Args:
        path: the model; its data files come along.
        out: the zip.
        reference: the original; by default the one that the ``run.json`` beside the model names, else the model itself.
        feeds: as in ``prepare``.
        tolerance, seeds: those of the ``run.json`` by default, else ``auto`` and 2.
        sizes: sizes for free dimensions, by name.
        session: session options (``device_id``, ``adapter``, ``disable_metacommands``, ``optimization``, ``dim:NAME``).
        warm_up, runs: runs of each feed before the timed ones, and timed ones.
        time_limit: seconds for everything on the other machine.
        measures: as in ``compare``.
        metric: name of your own measure (``file.py:function``), for whoever verifies; it is neither packed nor run.
        key: file of your own key, made where it is not there. It seals the kit, and never leaves you; the key for
            whoever runs the kit is written beside ``out``, its name ending in ``.run-key``.
        force: replace ``out``, and the run key.
        progress: is told the share done (0 to 1) and what is done.

    Returns:
        the kit that was written, with its size in bytes and its name, the SHA-256 of what it holds.

    Raises:
        DmlprepError: it cannot be packed, or the reference does not run.
    """
    from dmlprep.kit import KitRequest, pack
    from dmlprep.parity import load_feeds

    return pack(
        KitRequest(
            model=Path(path),
            out=Path(out),
            reference=Path(reference) if reference is not None else None,
            feeds=load_feeds(feeds),
            tolerance=tolerance,
            sizes=dict(sizes or {}),
            seeds=seeds,
            session=dict(session or {}),
            warm_up=warm_up,
            runs=runs,
            time_limit=time_limit,
            measures=dict(measures or {}),
            metric=metric,
            key=Path(key) if key is not None else None,
            force=force,
            progress=progress,
        )
    )


def verify_kit(
    result: str | Path,
    *,
    kit: str | Path,
    model: str | Path | None = None,
    record: str | Path | None = None,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    key: str | Path | None = None,
) -> tuple[Verdict, Path | None]:
    """Judge what came back from a kit, and put the verdict into the record of the model.

    Args:
        result: ``result.zip``, or the ``result.json`` extracted from it with its outputs.
        kit: the ``kit.zip`` that was sent.
        model: the model that the kit should hold; the record beside it takes the verdict.
        record: another record to take the verdict.
        metric, metric_bound: as in ``prepare``. A metric that the kit names is not run unless it is given.
        key: file of your own key: the kit must have been packed with it, and the result signed with the run key.

    Returns:
        the verdict, and the record that took it.

    Raises:
        InputError: something was damaged or edited, does not belong together, or lacks the seal that ``key`` asks for.
    """
    from dmlprep.kit import VerifyRequest, verify

    return verify(
        VerifyRequest(
            Path(result),
            Path(kit),
            Path(model) if model is not None else None,
            Path(record) if record is not None else None,
            user_metric(metric, metric_bound),
            Path(key) if key is not None else None,
        )
    )
