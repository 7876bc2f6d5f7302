"""Arguments that several functions take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dmlprep.options import Metric
from dmlprep.record.aliases import Progress

if TYPE_CHECKING:
    from dmlprep.metrics import NamedMetric, UserMetric
    from dmlprep.pipeline import Observer
    from dmlprep.recipe import Plan, Recipe

__all__ = ["Progress", "recipe_metric", "user_metric"]


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
