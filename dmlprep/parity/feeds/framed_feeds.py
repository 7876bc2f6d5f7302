"""The feeds of a run whose result has a frame: the app's pictures, and the inputs of the model inside the frame."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.model import Model
from dmlprep.graph.model.pinned import Value, pinned_array, pinned_values
from dmlprep.parity.feeds.framed import inside
from dmlprep.parity.feeds.graph_feeds import Feed, fit_feeds, make_image, static_sizes
from dmlprep.parity.feeds.run_feeds import RunFeeds, check_values, with_values
from dmlprep.passes.framing import Frame, Picture, between
from dmlprep.portable.arrays import Array

Framing = Callable[[Model], Frame | None]
"""A function that returns the frame that a model will have; ``None`` for none."""


def feeds_of(
    original: Model,
    user_feeds: Sequence[Mapping[str, Array]],
    sizes: Mapping[str, int] | None,
    *,
    framing: Framing | None = None,
    **more: Any,
) -> RunFeeds:
    """Return the feeds of a run, ``FramedFeeds`` where there is a frame; ``more`` are arguments of ``RunFeeds``."""
    if framing is None:
        return RunFeeds(original, user_feeds, sizes, **more)
    return FramedFeeds(original, user_feeds, sizes, framing, **more)


class FramedFeeds(RunFeeds):
    """``RunFeeds`` for a framed model: the user's and the seeded feeds are the framed model's inputs.

    A model without the frame gets them after the steps of the reference pipeline.
    """

    def __init__(
        self,
        original: Model,
        user_feeds: Sequence[Mapping[str, Array]],
        sizes: Mapping[str, int] | None,
        framing: Framing,
        *,
        values: Mapping[str, Value] | None = None,
        rough: bool = False,
    ) -> None:
        super().__init__(original, (), sizes, values=values, rough=rough)
        self._framing = framing
        self._theirs = user_feeds
        self._values = values or {}

    def of(self, model: Model, count: int, *, rough: bool | None = None) -> list[Feed]:
        """Return the app's pictures where ``model`` has the frame, otherwise the inputs inside the frame.

        Raises:
            InputError: a feed of the user's does not fit the framed model.
            ModelRefused: DP305, the user passed feeds, and the frame does not fit the model.
            UsageError: Pillow is not installed, with which the reference pipeline resizes.
        """
        there = between(self.original.ir, model.ir)
        try:
            frame = there or self._framing(model)
        except ModelRefused:
            if self._theirs:
                raise
            frame = None  # before its sizes are pinned
        if self._theirs and frame is not None:
            feeds = self._fitted(frame, model)[:count]
        else:
            feeds = super().of(model, count, rough=rough)
            noise = self._rough if rough is None else rough
            for picture in frame.pictures if frame is not None else ():
                feeds = [
                    {**feed, picture.name: _seeded(picture, seed, smooth=not (noise and seed % 2))}
                    for seed, feed in enumerate(feeds)
                ]
        return feeds if there is not None else [inside(frame, feed, self.original.ir) for feed in feeds]

    def _fitted(self, frame: Frame, model: Model) -> list[Feed]:
        """Return the user's feeds, with the values of the inputs that they lack."""
        inputs = self.original.ir.graph.inputs
        noted = pinned_values(model.ir, inputs)
        fixed = {v.name or "": pinned_array(v, noted[v.name or ""]) for v in inputs if v.name in noted}
        fitted = fit_feeds(_interface(frame, self.original), self._theirs, "feeds", self._values)
        for feed in fitted:
            check_values(feed, self._values)
        return [with_values(feed, fixed) for feed in fitted]

    def fixed_sizes(self, model: Model) -> dict[str, int]:
        """Return fixed sizes as ``RunFeeds`` does; those of a framed input differ from the original's."""
        return fixed_sizes(self.original, model)

    @property
    def user_count(self) -> int:
        """The number of feeds from the user."""
        return len(self._theirs)


def fixed_sizes(original: Model, result: Model) -> dict[str, int]:
    """Return sizes by ``input:axis`` that ``result`` fixes for the original's inputs; inside its frame, if any."""
    frame = between(original.ir, result.ir)
    sizes = static_sizes(result)
    for picture in frame.pictures if frame is not None else ():
        sizes |= {f"{picture.name}:{axis}": size for axis, size in enumerate(picture.model_shape)}
    return sizes


def _interface(frame: Frame, original: Model) -> Model:
    """Return a graph with only the inputs of the framed model."""
    inputs = []
    for value in original.ir.graph.inputs:
        if value.name in original.ir.graph.initializers:
            continue
        picture = frame.picture(value.name or "")
        kind, shape = value.type, value.shape
        if picture is not None:
            kind, shape = ir.TensorType(ir.DataType.from_numpy(np.dtype(picture.type))), ir.Shape(picture.shape)
        inputs.append(ir.Value(name=value.name, type=kind, shape=shape.copy() if shape is not None else None))
    return Model(ir.Model(ir.Graph(inputs, [], nodes=[], opset_imports={"": 21}), ir_version=10), original.path)


def _seeded(picture: Picture, seed: int, *, smooth: bool) -> Array:
    """Return a picture as an app passes it, with whole levels where it has bytes."""
    rng = np.random.default_rng([seed, zlib.crc32(picture.name.encode())])
    levels = make_image(rng, picture.shape, np.dtype(np.uint8), smooth=smooth)
    values: Array = (levels / 255 * picture.white if not picture.bytes else levels).astype(picture.type)
    return values
