"""A frame with all its numbers, and the note of it in a framed model, from which a proof reads how data come to the
original."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import onnx_ir as ir

from dmlprep.core.errors import InternalError, ModelRefused
from dmlprep.core.files import Unfit, parse_json
from dmlprep.passes.framing.building import dtype_of
from dmlprep.passes.framing.options import DetectOptions, Mode, Size

_KEY = "dmlprep.frame"

Colour = Literal["rgb", "bgr", "rgba", "bgra", "gray"]
Layout = Literal["nchw", "nhwc"]


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """An input that takes the app's pictures.

    Attributes:
        name: of the input, with and without the frame.
        batch: pictures in one call.
        size, type, layout, colour, white: of the app's pictures; height and width.
        mode: whose resize.
        resized: height and width after the resize.
        offset: row and column of the resized picture's corner in what the model gets; below zero where it is cut.
        fill: what is around it, 0 to 255.
        scale, mean, deviation: as in ``PictureOptions``, the latter for each channel of the model.
        model_size, model_type, model_layout, model_colour: of what the model gets.
    """

    name: str
    batch: int
    size: tuple[Size, Size]
    type: Literal["uint8", "float16", "float32"]
    layout: Layout
    colour: Colour
    white: float
    mode: Mode
    resized: tuple[Size, Size]
    offset: tuple[int, int]
    fill: float
    scale: float
    mean: list[float]
    deviation: list[float]
    model_size: tuple[Size, Size]
    model_type: Literal["uint8", "float16", "float32"]
    model_layout: Layout
    model_colour: Colour

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the input as the app sees it."""
        return _shape(self.layout, self.batch, len(self.colour) if self.colour != "gray" else 1, self.size)

    @property
    def model_shape(self) -> tuple[int, ...]:
        """Sizes of the input as the model has it."""
        return _shape(self.model_layout, self.batch, len(self.mean), self.model_size)

    @property
    def bytes(self) -> bool:
        """Return whether the pictures are whole numbers, which a resize keeps whole."""
        return self.type == "uint8"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """An output as the app wants it.

    Attributes:
        name: of the original's output.
        made: names of the outputs in its place.
        activation, axis, take, top, index_type: as in ``ResultOptions``; the axis is none below zero.
        layout, colour, model_layout, model_colour, scale, mean, deviation: of a picture.
    """

    name: str
    made: list[str]
    activation: Literal["none", "softmax", "sigmoid"]
    axis: int
    take: Literal["all", "argmax", "topk", "picture"]
    top: int
    index_type: Literal["int64", "int32", "uint8"]
    layout: Layout
    colour: Literal["rgb", "bgr", "gray"]
    model_layout: Layout
    model_colour: Literal["rgb", "bgr", "gray"]
    scale: float
    mean: list[float]
    deviation: list[float]


class Detect(msgspec.Struct, frozen=True, kw_only=True):
    """Boxes in the place of raw outputs.

    Attributes:
        table: as in the recipe; ``candidates`` and ``count`` are no more than there are.
        taken: the outputs that they take the place of.
        made: names of boxes, scores, classes and their number.
        model_size: height and width of what the model sees.
        size, resized, offset: of the app's picture, as in ``Picture``.
    """

    table: DetectOptions
    taken: list[str]
    made: list[str]
    model_size: tuple[Size, Size]
    size: tuple[Size, Size]
    resized: tuple[Size, Size]
    offset: tuple[int, int]


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of a frame: the inputs, the outputs and the detector that are framed, and the step's options (``table``)."""

    pictures: list[Picture] = []
    results: list[Result] = []
    detect: Detect | None = None
    table: dict[str, Any] = {}

    def picture(self, name: str) -> Picture | None:
        """The frame of an input."""
        return next((p for p in self.pictures if p.name == name), None)


def _shape(layout: Layout, batch: int, channels: int, size: tuple[int, int]) -> tuple[int, ...]:
    return (batch, *size, channels) if layout == "nhwc" else (batch, channels, *size)


def note_frame(model: ir.Model, frame: Frame) -> None:
    """Write the note into the model's metadata."""
    model.metadata_props[_KEY] = msgspec.json.encode(frame).decode()


def frame_of(model: ir.Model) -> Frame | None:
    """Return the frame that is noted in a model; ``ModelRefused`` (DP305) where the note cannot be read."""
    text = model.metadata_props.get(_KEY)
    if text is None:
        return None
    try:
        return parse_json(text, Frame)
    except Unfit as error:
        raise unfit(f"the metadata of the frame cannot be read: {error}") from error


def unfit(why: str) -> ModelRefused:
    """DP305, of a note that somebody else wrote, or another version."""
    fix = "prepare the model again with this version of dmlprep"
    return ModelRefused(why, where=f"metadata {_KEY}", code="DP305", fix=fix)


def between(original: ir.Model, made: ir.Model) -> Frame | None:
    """Return the frame that one model has around the other; ``None`` where both have it, or neither.

    Raises:
        ModelRefused: DP305, the note describes other inputs than the two have.
    """
    frame = None if _KEY in original.metadata_props else frame_of(made)
    for picture in frame.pictures if frame is not None else ():
        for model, sizes in ((made, picture.shape), (original, picture.model_shape)):
            shape = next((v.shape for v in model.graph.inputs if v.name == picture.name), None)
            fixed = () if shape is None else tuple(d if isinstance(d, int) else None for d in shape)
            if len(fixed) != 4 or any(d not in (None, s) for d, s in zip(fixed, sizes, strict=True)):
                raise unfit(f"the metadata of the frame names another input than {picture.name!r}")
    return frame


def check_interface(model: ir.Model) -> None:
    """Compare the inputs and outputs of a framed model with its note; ``InternalError`` where they differ."""
    frame = frame_of(model)
    if frame is None:
        return
    has = {v.name: (v.dtype, v.shape) for v in model.graph.inputs}
    for picture in frame.pictures:
        dtype, shape = has.get(picture.name, (None, None))
        if dtype != dtype_of(picture.type) or shape is None or tuple(shape) != picture.shape:
            raise _other(picture.name)
    outputs = {v.name for v in model.graph.outputs}
    detected = [(frame.detect.taken[0], frame.detect.made)] if frame.detect is not None else []
    for name, made in (*detected, *((result.name, result.made) for result in frame.results)):
        if not set(made) <= outputs:
            raise _other(name)


def _other(name: str) -> InternalError:
    return InternalError(f"the frame of {name!r} does not match its metadata", fix="please report this")
