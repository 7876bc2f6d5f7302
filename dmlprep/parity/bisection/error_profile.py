"""The error along a model: values that a bisection compared, in the order of the nodes that compute them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dmlprep.graph.model.walk import label
from dmlprep.metrics import Tolerance
from dmlprep.parity.bisection.graph_cuts import Cuts
from dmlprep.parity.bisection.probe import Prober, differ
from dmlprep.portable.arrays import Array
from dmlprep.record import OutputMetrics

T = TypeVar("T")

MOST_VALUES = 96
"""Largest number of intermediate values exposed as outputs in one run."""


@dataclass(frozen=True)
class ProfilePoint:
    """A value of the candidate, and its error against the reference's value.

    Attributes:
        value: name of the value.
        node: label of the node that computes it.
        place: index of that node in topological order, from 0.
        error: max|d| / max|reference|; infinite if elements are not finite.
    """

    value: str
    node: str
    place: int
    error: float


def profile_points(cuts: Cuts, metrics: Mapping[str, OutputMetrics]) -> list[ProfilePoint]:
    """Return a point for each value in ``metrics`` that a node of the main graph computes, in order of the nodes."""
    makers = {v.name: (place, node) for place, node in enumerate(cuts.nodes) for v in node.outputs}
    return sorted(
        (
            ProfilePoint(name, label(node), place, math.inf if one.non_finite else one.max_rel)
            for name, one in metrics.items()
            if name in makers
            for place, node in [makers[name]]
        ),
        key=lambda one: one.place,
    )


def sweep(prober: Prober, cuts: Cuts, known: Mapping[str, str], tolerance: Tolerance) -> dict[str, OutputMetrics]:
    """Compare values all along two models in one run of each, at most ``MOST_VALUES``; return their metrics by name.

    Args:
        known: names of the reference's values by the names of the candidate's values that match them.

    Raises:
        SessionFailure: a part does not load or run.
    """
    names = list(dict.fromkeys(name for cut in evenly(cuts.whole(known), MOST_VALUES) for name in cuts.live(cut)))
    names = [name for name in evenly(names, MOST_VALUES) if name in known]
    if not names:
        return {}
    values = prober.values("reference", dict.fromkeys(known[name] for name in names))
    reference = {name: values[known[name]] for name in names if known[name] in values}
    candidate = prober.values("candidate", names)
    strangers = fit_shapes(reference, candidate)
    return {
        name: differ(name, reference[name], candidate[name], tolerance)
        for name in reference
        if name in candidate and name not in strangers
    }


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` of the items, evenly spread; the last is always among them."""
    if len(items) <= most:
        return list(items)
    return [items[(number + 1) * len(items) // most - 1] for number in range(most)]


def fit_shapes(reference: dict[str, Array], candidate: Mapping[str, Array]) -> set[str]:
    """Reshape the arrays in ``reference``, in place, to the candidate's shapes if only sizes of 1 differ.

    A Reshape or Unsqueeze that was moved or folded away leaves the same numbers under the same name.

    Returns:
        the names of values whose shapes differ in other ways.
    """
    strangers = set()
    for name, array in reference.items():
        shape = candidate[name].shape if name in candidate else array.shape
        if [n for n in array.shape if n != 1] == [n for n in shape if n != 1]:
            reference[name] = array.reshape(shape)
        else:
            strangers.add(name)
    return strangers
