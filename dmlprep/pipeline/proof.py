"""The proof: the original on the CPU against the prepared model on the CPU and, where there is one, on DirectML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dmlprep.errors import CheckNotRun
from dmlprep.parity import Reference, compare, load_feeds
from dmlprep.pipeline.observer import Observer
from dmlprep.recipe import ParitySettings
from dmlprep.record import Verdict

if TYPE_CHECKING:
    import numpy as np

    from dmlprep.runtime import SessionOptions

__all__ = ["compare_models", "prove"]

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


def prove(
    source: Path,
    prepared: Path,
    settings: ParitySettings,
    *,
    feeds: Sequence[Arrays] = (),
    session: SessionOptions | None = None,
    observer: Observer | None = None,
) -> list[Verdict]:
    """One verdict for each device that the settings ask for; the original runs once.

    Raises:
        InputError: a feed of the user's does not fit the model.
    """
    observer = observer or Observer()
    devices: list[Literal["cpu", "dml"]] = []
    if settings.cpu:
        devices.append("cpu")
    if settings.dml != "off":
        devices.append("dml")
    if not devices:
        return []
    verdicts: list[Verdict] = []
    try:
        reference = Reference.of(
            source,
            feeds or None,
            like=prepared,
            sizes=settings.sizes,
            seeds=settings.seeds,
            time_limit=settings.time_limit,
            progress=observer.step_progress,
        )
    except CheckNotRun as error:
        return [Verdict(f"parity on {device}", "not-run", str(error)) for device in devices]
    with reference:
        for device in devices:
            observer.check_started(f"parity on {device}")
            verdict = compare(
                reference,
                prepared,
                device=device,
                tolerance=settings.tolerance,
                time_limit=settings.time_limit,
                session=session,
                progress=observer.step_progress,
            )
            verdicts.append(verdict)
            observer.check_finished(verdict)
    return verdicts


def compare_models(
    reference: Path,
    candidate: Path,
    *,
    feeds: Sequence[str | Path | Arrays],
    device: Literal["cpu", "dml"],
    session: SessionOptions,
    tolerance: str,
    sizes: Mapping[str, int],
    seeds: int,
) -> Verdict:
    """``dmlprep compare``: two models of the user's.

    Raises:
        InputError: a model or a feed cannot be read, or a feed does not fit.
    """
    return compare(
        reference,
        candidate,
        load_feeds(feeds) or None,
        device=device,
        tolerance=tolerance,
        time_limit=session.time_limit,
        session=session,
        sizes=sizes,
        seeds=seeds,
    )
