"""The feeds of a run whose result has a frame: the app's pictures for the framed model, and what they are inside it."""

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
"""The frame that a model will have; ``None`` for none."""


def feeds_of(
    original: Model,
    given: Sequence[Mapping[str, Array]],
    sizes: Mapping[str, int] | None,
    *,
    framing: Framing | None = None,
    **more: Any,
) -> RunFeeds:
    """The feeds of a run, ``FramedFeeds`` where there is a frame; ``more`` as ``RunFeeds`` takes it."""
    if framing is None:
        return RunFeeds(original, given, sizes, **more)
    return FramedFeeds(original, given, sizes, framing, **more)


class FramedFeeds(RunFeeds):
    """As ``RunFeeds``; the user's feeds are those of the framed model, and so are the seeded ones.

    A model without the frame gets what the reference pipeline makes of them.
    """

    def __init__(
        self,
        original: Model,
        given: Sequence[Mapping[str, Array]],
        sizes: Mapping[str, int] | None,
        framing: Framing,
        *,
        values: Mapping[str, Value] | None = None,
        rough: bool = False,
    ) -> None:
        super().__init__(original, (), sizes, values=values, rough=rough)
        self._framing = framing
        self._theirs = given
        self._values = values or {}

    def of(self, model: Model, count: int, *, rough: bool | None = None) -> list[Feed]:
        """The app's pictures where ``model`` has the frame, else what they are inside it.

        Raises:
            InputError: a feed of the user's does not fit the framed model.
            ModelRefused: DP305, the user gave feeds, and the frame does not fit the model.
            UsageError: Pillow is not installed, which the reference pipeline resizes with.
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
        """The user's feeds, with the values of the inputs that they lack."""
        inputs = self.original.ir.graph.inputs
        noted = pinned_values(model.ir, inputs)
        fixed = {v.name or "": pinned_array(v, noted[v.name or ""]) for v in inputs if v.name in noted}
        fitted = fit_feeds(_interface(frame, self.original), self._theirs, "feeds", self._values)
        for feed in fitted:
            check_values(feed, self._values)
        return [with_values(feed, fixed) for feed in fitted]

    def fixed_sizes(self, model: Model) -> dict[str, int]:
        """As ``RunFeeds``: a framed input has other sizes than the original's."""
        return fixed_sizes(self.original, model)

    @property
    def given(self) -> int:
        """How many feeds the user gave."""
        return len(self._theirs)


def fixed_sizes(original: Model, made: Model) -> dict[str, int]:
    """Sizes by ``input:axis`` that ``made`` fixes for the original's inputs; inside its frame, where it has one."""
    frame = between(original.ir, made.ir)
    sizes = static_sizes(made)
    for picture in frame.pictures if frame is not None else ():
        sizes |= {f"{picture.name}:{axis}": size for axis, size in enumerate(picture.model_shape)}
    return sizes


def _interface(frame: Frame, original: Model) -> Model:
    """A graph with nothing but the inputs of the framed model."""
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
    """A picture as the app would give it, of whole levels where it has bytes."""
    rng = np.random.default_rng([seed, zlib.crc32(picture.name.encode())])
    levels = make_image(rng, picture.shape, np.dtype(np.uint8), smooth=smooth)
    values: Array = (levels / 255 * picture.white if not picture.bytes else levels).astype(picture.type)
    return values
