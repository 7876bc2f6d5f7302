"""The feeds of a run whose result has a frame, which is pre- and post-processing in the graph.

The framed model gets the app's pictures; the model inside the frame gets its own inputs.
"""

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
"""A function that returns the frame that a model will get, or ``None`` if it will get none."""


def feeds_of(
    original: Model,
    user_feeds: Sequence[Mapping[str, Array]],
    sizes: Mapping[str, int] | None,
    *,
    framing: Framing | None = None,
    **more: Any,
) -> RunFeeds:
    """Return the feeds of a run: ``FramedFeeds`` if ``framing`` is set, otherwise ``RunFeeds``.

    ``more`` are further arguments of ``RunFeeds``.
    """
    if framing is None:
        return RunFeeds(original, user_feeds, sizes, **more)
    return FramedFeeds(original, user_feeds, sizes, framing, **more)


class FramedFeeds(RunFeeds):
    """``RunFeeds`` for a result with a frame: the user's and the seeded feeds are inputs of the framed model.

    For a model without the frame, the pictures are converted by reference code in numpy and Pillow.

    Args:
        framing: a function that returns the frame that a model will get.
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
        """Return feeds for ``model``: the app's pictures if it has the frame, otherwise inputs for inside the frame.

        They are at most ``count`` of the user's feeds, or ``count`` seeded ones. ``rough`` is as in ``RunFeeds.of``.

        Raises:
            InputError: a user's feed does not fit the framed model.
            ModelRefused: DP305, the frame contradicts itself; or the user passed feeds, and it does not fit the model.
            UsageError: Pillow is needed to resize pictures, and not installed; or as ``RunFeeds.of``.
            CheckNotRun: as ``RunFeeds.of``.
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
        """Return the user's feeds after a check, completed with the pinned values of inputs that they lack."""
        inputs = self.original.ir.graph.inputs
        noted = pinned_values(model.ir, inputs)
        fixed = {v.name or "": pinned_array(v, noted[v.name or ""]) for v in inputs if v.name in noted}
        fitted = fit_feeds(_interface(frame, self.original), self._theirs, "feeds", self._values)
        for feed in fitted:
            check_values(feed, self._values)
        return [with_values(feed, fixed) for feed in fitted]

    def fixed_sizes(self, model: Model) -> dict[str, int]:
        """Return the sizes by ``input:axis`` that ``model`` fixes for the original's inputs, inside its frame."""
        return fixed_sizes(self.original, model)

    @property
    def user_count(self) -> int:
        """The number of the user's feeds; 0 if the feeds are seeded."""
        return len(self._theirs)


def fixed_sizes(original: Model, result: Model) -> dict[str, int]:
    """Return the sizes by ``input:axis`` that ``result`` fixes for the original's inputs.

    If ``result`` has a frame, these are the sizes inside the frame, not those of the app's pictures.
    """
    frame = between(original.ir, result.ir)
    sizes = static_sizes(result)
    for picture in frame.pictures if frame is not None else ():
        sizes |= {f"{picture.name}:{axis}": size for axis, size in enumerate(picture.model_shape)}
    return sizes


def _interface(frame: Frame, original: Model) -> Model:
    """Return a model without nodes that has the inputs of the framed model, to check feeds against it."""
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
    """Return a generated picture in the form in which an app passes it: bytes, or numbers from 0 to white."""
    rng = np.random.default_rng([seed, zlib.crc32(picture.name.encode())])
    levels = make_image(rng, picture.shape, np.dtype(np.uint8), smooth=smooth)
    values: Array = (levels / 255 * picture.white if not picture.bytes else levels).astype(picture.type)
    return values
