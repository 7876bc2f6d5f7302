"""What is measured: a model file, and the sizes that a session is told to override."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.parity.feeds.framed_feeds import fixed_sizes
from dmlprep.parity.feeds.sizes import graph_inputs
from dmlprep.passes.framing import Frame, between


@dataclass(frozen=True)
class Variant:
    """One of the models that are timed side by side.

    Attributes:
        sizes: free dimensions to override, by name.
        shown: the path to show, where the file will be moved.
        why_not: why it cannot be run; empty where it is to be tried.
        frame: that another of the models has around this one: what all are fed is the app's own data.
    """

    name: str
    model: Model
    path: Path
    sizes: Mapping[str, int] = field(default_factory=dict)
    shown: str = ""
    why_not: str = ""
    frame: Frame | None = None


def overrides(model: Model, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes by name of a free dimension, out of sizes by name or by ``input:axis``; those that it has not are left out.

    A session overrides dimensions by their names alone.
    """
    by_name: dict[str, int] = {}
    for one in graph_inputs(model):
        for axis, dim in enumerate(one.dims or ()):
            size = sizes.get(f"{one.name}:{axis}", sizes.get(dim) if isinstance(dim, str) else None)
            if isinstance(dim, str) and size is not None:
                by_name[dim] = size
    return by_name


def overridden_like(original: Model, prepared: Model, path: Path, name: str) -> Variant:
    """The original with the sizes that are fixed in what was made of it; ``why_not`` where none can be overridden."""
    free = [dim for one in graph_inputs(original) for dim in one.dims or () if not isinstance(dim, int)]
    sizes = overrides(original, fixed_sizes(original, prepared))
    if not free:
        return Variant(name, original, path, why_not="its sizes are fixed already")
    if not any(isinstance(dim, str) for dim in free):
        return Variant(name, original, path, why_not="its free sizes have no names that a session could override")
    if not sizes:
        return Variant(name, original, path, why_not="the result leaves its sizes free too")
    return Variant(name, original, path, sizes, frame=between(original.ir, prepared.ir))


def overridden(variant: Variant) -> Model:
    """The graph as its session sees it: a copy, where sizes are overridden. Its tensors stay where they lie."""
    if not variant.sizes:
        return variant.model
    model = variant.model.copy()
    for value in model.ir.graph.inputs:
        if value.shape is None:
            continue
        value.shape = ir.Shape(
            [variant.sizes.get(str(dim.value), dim) if isinstance(dim, ir.SymbolicDim) else dim for dim in value.shape]
        )
    return model
