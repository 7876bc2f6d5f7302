"""Arguments that several functions take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from dmlprep.record.aliases import Progress

if TYPE_CHECKING:
    import numpy as np

    from dmlprep.metrics import NamedMetric, UserMetric
    from dmlprep.pipeline import Observer
    from dmlprep.recipe import Plan, Recipe
    from dmlprep.runtime import SessionOptions

__all__ = ["Device", "Feeds", "Metric", "PrepareOptions", "Progress", "dml_session", "recipe_metric", "user_metric"]

Device = Literal["auto", "cpu", "dml"]

Feeds: TypeAlias = "Sequence[str | Path | Mapping[str, np.ndarray[Any, Any]]]"
"""Inputs: ``.npz`` files, ``NAME=file.npy``, folders, or arrays by input name."""

Metric = Callable[[dict[str, Any], dict[str, Any]], object]
"""A measure of the user's own: outputs of the original and of the candidate on one feed -> float or (float, bool)."""


class PrepareOptions(TypedDict, total=False):
    """Arguments of ``prepare`` that ``prepare_buckets`` takes as well, by their names there."""

    recipe: str | Path
    target: str | None
    settings: Sequence[str]
    feeds: Feeds
    device: Device
    device_id: int | None
    adapter: str | None
    gpu: str | None
    require_dml: bool
    metric: str | Metric | None
    metric_bound: float | None
    bench: bool
    bench_seconds: float
    fresh: bool
    external_data: bool
    vram: str | int | None
    force: bool
    observer: Observer | None
    command_line: str


def dml_session(
    device: Device, device_id: int | None, adapter: str | None, gpu: str | None, require_dml: bool
) -> tuple[SessionOptions, list[str]]:
    """How DirectML's sessions are opened for a proof, and the settings of a recipe that ask for them."""
    from dmlprep.recipe import device_settings
    from dmlprep.runtime import SessionOptions, choose_adapter, choose_gpu

    device_settings(device, require_dml, "device, require_dml")  # before a device is looked for
    session = SessionOptions(device_id=choose_adapter(adapter, device_id, on=device), gpu=choose_gpu(gpu, on=device))
    return session, device_settings(device, require_dml or bool(session.gpu), "device, require_dml")


def recipe_metric(recipe: Recipe) -> NamedMetric | None:
    """The metric that a recipe names, or a setting of it."""
    from dmlprep.metrics import NamedMetric

    if not recipe.parity.metric:
        return None
    if recipe.name.startswith("@"):
        return NamedMetric(recipe.parity.metric, "the setting parity.metric")
    return NamedMetric(recipe.parity.metric, recipe.name, Path(recipe.name).parent)


def user_metric(
    metric: str | Metric | NamedMetric | None,
    bound: float | None,
    plan: Plan | None = None,
    observer: Observer | None = None,
) -> UserMetric | None:
    """The user's measure, else the recipe's, whose path is relative to the recipe.

    Args:
        observer: is told of code that a file names, before it runs.
    """
    from dmlprep.metrics import NamedMetric, UserMetric, load_metric

    if metric is None and plan is not None and (metric := recipe_metric(plan.recipe)) is not None:
        bound = bound if bound is not None else plan.recipe.parity.metric_bound
    if isinstance(metric, NamedMetric):
        if observer is not None:
            observer.runs_code(metric.by, metric.code)
        found = load_metric(metric.name, bound, metric.folder)
        return None if found is None else replace(found, named_by=metric.by)
    if metric is None or isinstance(metric, str):
        return load_metric(metric or "", bound)
    return UserMetric(getattr(metric, "__name__", "metric"), metric, bound)
