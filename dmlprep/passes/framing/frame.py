"""A frame (pre- and post-processing in the graph) with all its numbers, and its note in the metadata of a framed model.

The proof reads the note to compute the inputs of the original model from the app's pictures.
"""

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
    """A framed input: the pre-processing from the app's pictures to the input of the model.

    Attributes:
        name: the input's name, the same with and without the frame.
        batch: number of pictures in one call.
        size, type, layout, colour, white: properties of the app's pictures. The size is height and width; ``white`` is
            the number that means white.
        mode: the library and filter whose resize the frame computes.
        resized: height and width after the resize, in pixels.
        offset: row and column of the top left corner of the resized picture in the model's picture; negative if the
            resized picture is cut there.
        fill: brightness of the border around the picture, 0 (black) to 255 (white).
        scale, mean, deviation: as in ``PictureOptions``; one mean and deviation for each channel of the model.
        model_size, model_type, model_layout, model_colour: properties of the picture that the original model reads.
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
        """Shape of the framed model's input, which the app passes."""
        return _shape(self.layout, self.batch, len(self.colour) if self.colour != "gray" else 1, self.size)

    @property
    def model_shape(self) -> tuple[int, ...]:
        """Shape of the original model's input."""
        return _shape(self.model_layout, self.batch, len(self.mean), self.model_size)

    @property
    def bytes(self) -> bool:
        """Return whether the app's pictures are uint8, so that a resize rounds to whole numbers."""
        return self.type == "uint8"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A framed output: the post-processing from an output of the model to the result that the app needs.

    Attributes:
        name: name of the original model's output.
        outputs: names of the outputs that replace it.
        activation, axis, take, top, index_type: as in ``ResultOptions``; the axis is not negative.
        layout, colour, model_layout, model_colour, scale, mean, deviation: as in ``ResultOptions``, for a picture; mean
            and deviation for each channel.
    """

    name: str
    outputs: list[str]
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
    """A framed detector: the post-processing from raw outputs to boxes that an app can draw.

    Attributes:
        table: the options in the recipe, with ``candidates`` and ``count`` limited to the number of boxes.
        raw_outputs: names of the outputs that the boxes replace.
        outputs: names of the new outputs: boxes, scores, classes, and the number of boxes.
        model_size: height and width of the picture that the original model reads.
        size, resized, offset: properties of the app's picture, as in ``Picture``.
    """

    table: DetectOptions
    raw_outputs: list[str]
    outputs: list[str]
    model_size: tuple[Size, Size]
    size: tuple[Size, Size]
    resized: tuple[Size, Size]
    offset: tuple[int, int]


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole frame: the framed inputs, outputs and detector, and the options of the step ``frame`` (``table``)."""

    pictures: list[Picture] = []
    results: list[Result] = []
    detect: Detect | None = None
    table: dict[str, Any] = {}

    def picture(self, name: str) -> Picture | None:
        """The framed input of this name; ``None`` if the frame has none."""
        return next((p for p in self.pictures if p.name == name), None)


def _shape(layout: Layout, batch: int, channels: int, size: tuple[int, int]) -> tuple[int, ...]:
    return (batch, *size, channels) if layout == "nhwc" else (batch, channels, *size)


def note_frame(model: ir.Model, frame: Frame) -> None:
    """Write the frame as a note into the model's metadata, in place."""
    model.metadata_props[_KEY] = msgspec.json.encode(frame).decode()


def frame_of(model: ir.Model) -> Frame | None:
    """Return the frame from the note in a model's metadata; ``None`` without a note.

    Raises:
        ModelRefused: DP305, the note is not readable.
    """
    text = model.metadata_props.get(_KEY)
    if text is None:
        return None
    try:
        return parse_json(text, Frame)
    except Unfit as error:
        raise unfit(f"the metadata of the frame cannot be read: {error}") from error


def unfit(why: str) -> ModelRefused:
    """Return the error DP305 for a note that does not fit; the fix says to prepare the model again."""
    fix = "prepare the model again with this version of dmlprep"
    return ModelRefused(why, where=f"metadata {_KEY}", code="DP305", fix=fix)


def between(original: ir.Model, prepared: ir.Model) -> Frame | None:
    """Return the frame of ``prepared``; ``None`` if it has no frame, or if ``original`` has one too.

    Raises:
        ModelRefused: DP305, the note is not readable, or describes other inputs than the models have.
    """
    frame = None if _KEY in original.metadata_props else frame_of(prepared)
    for picture in frame.pictures if frame is not None else ():
        for model, sizes in ((prepared, picture.shape), (original, picture.model_shape)):
            shape = next((v.shape for v in model.graph.inputs if v.name == picture.name), None)
            fixed = () if shape is None else tuple(d if isinstance(d, int) else None for d in shape)
            if len(fixed) != 4 or any(d not in (None, s) for d, s in zip(fixed, sizes, strict=True)):
                raise unfit(f"the metadata of the frame names another input than {picture.name!r}")
    return frame


def check_interface(model: ir.Model) -> None:
    """Compare a framed model with its note: types and shapes of inputs, names of outputs.

    A model without a note passes.

    Raises:
        InternalError: they differ.
        ModelRefused: DP305, the note is not readable.
    """
    frame = frame_of(model)
    if frame is None:
        return
    has = {v.name: (v.dtype, v.shape) for v in model.graph.inputs}
    for picture in frame.pictures:
        dtype, shape = has.get(picture.name, (None, None))
        if dtype != dtype_of(picture.type) or shape is None or tuple(shape) != picture.shape:
            raise _other(picture.name)
    outputs = {v.name for v in model.graph.outputs}
    detected = [(frame.detect.raw_outputs[0], frame.detect.outputs)] if frame.detect is not None else []
    for name, names in (*detected, *((result.name, result.outputs) for result in frame.results)):
        if not set(names) <= outputs:
            raise _other(name)


def _other(name: str) -> InternalError:
    return InternalError(f"the frame of {name!r} does not match its metadata", fix="please report this")
