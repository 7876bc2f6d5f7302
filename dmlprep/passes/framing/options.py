"""The tables of a frame as a recipe writes them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

Mode: TypeAlias = Literal[
    "pillow-nearest",
    "pillow-box",
    "pillow-bilinear",
    "pillow-hamming",
    "pillow-bicubic",
    "pillow-lanczos",
    "opencv-nearest",
    "opencv-linear",
    "opencv-area",
    "opencv-cubic",
]
"""Whose resize it is, and which: Pillow's ``Resampling``, OpenCV's ``INTER_``. Pillow's average when they shrink, of
OpenCV's only ``area`` does."""

MOST_SIDE = 16384
"""Pixels of one side: what a texture of Direct3D has at most."""

MOST_NUMBERS = 1 << 27
"""Numbers of all pictures of an input, as the app has them, and resized. A picture of 8K in colour has 100 million."""

Size = Annotated[int, msgspec.Meta(ge=1, le=MOST_SIDE)]
Finite = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Above = Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)]
"""Within these, no quotient leaves what FP32 holds."""


class PictureOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What the app has for an input of pictures. They become ``(value / white * scale - mean) / deviation``.

    Attributes:
        size: height and width of the app's pictures; ``None``: those of the model.
        type: element type of the app's pictures.
        layout: their layout.
        colour: their channels; alpha is left out.
        white: what white is in them; 255 for bytes and 1 for others where it is not said.
        fit: how they come to the model's size: stretched; resized until they cover it, and the middle cut out; or
            resized to fit into it, with ``fill`` around them.
        resize: whose resize is followed.
        resized: of ``crop``: the shorter side, or height and width, before the middle is cut out.
        odd: of ``crop``: half of an odd number of rows rounds down (transformers), or to the even one (torchvision).
        place: of ``letterbox``: the picture is in the centre, or at the top left corner.
        fill: of ``letterbox``: 0 (black) to 255 (white).
        scale: what white is for the model before mean and deviation.
        model_size: height and width that the model must have; a model of another size is refused.
        mean, deviation: one number, or one for each channel in the model's order.
        model_layout: where the model's shape does not tell.
        model_colour: the order of its channels; ``auto`` is gray for one channel, and RGB for three.
    """

    size: tuple[Size, Size] | None = None
    type: Literal["uint8", "float16", "float32"] = "uint8"
    layout: Literal["nhwc", "nchw"] = "nhwc"
    colour: Literal["rgb", "bgr", "rgba", "bgra", "gray"] = "rgb"
    white: Above | None = None
    fit: Literal["stretch", "crop", "letterbox"] = "stretch"
    resize: Mode = "pillow-bilinear"
    # msgspec 0.22 crashes on a bounded number beside a tuple: ``resolve`` holds it to the bounds.
    resized: int | tuple[int, int] | None = None
    odd: Literal["floor", "even"] = "floor"
    place: Literal["centre", "corner"] = "centre"
    fill: Annotated[float, msgspec.Meta(ge=0, le=255)] = 0
    scale: Above = 1.0
    mean: Finite | list[Finite] = 0.0
    deviation: Above | list[Above] = 1.0
    model_size: tuple[Size, Size] | None = None
    model_layout: Literal["auto", "nchw", "nhwc"] = "auto"
    model_colour: Literal["auto", "rgb", "bgr", "gray"] = "auto"


class ResultOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What the app wants of an output.

    Attributes:
        activation: computed first.
        axis: of the activation and of what is taken.
        take: all of it; the index of the largest number; the ``top`` largest numbers and their indices; or a picture.
        top: how many.
        index_type: of indices.
        layout: of a picture, which is bytes.
        colour: of a picture.
        scale, mean, deviation: as the model has them: ``(value * deviation + mean) / scale`` is 1 for white.
        model_layout, model_colour: as in ``PictureOptions``.
    """

    activation: Literal["none", "softmax", "sigmoid"] = "none"
    axis: Annotated[int, msgspec.Meta(ge=-8, le=7)] = -1
    take: Literal["all", "argmax", "topk", "picture"] = "all"
    top: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 5
    index_type: Literal["int64", "int32", "uint8"] = "int64"
    layout: Literal["nhwc", "nchw"] = "nhwc"
    colour: Literal["rgb", "bgr", "gray"] = "rgb"
    scale: Above = 1.0
    mean: Finite | list[Finite] = 0.0
    deviation: Above | list[Above] = 1.0
    model_layout: Literal["auto", "nchw", "nhwc"] = "auto"
    model_colour: Literal["auto", "rgb", "bgr", "gray"] = "auto"


class DetectOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Boxes that an app can draw, in the place of a detector's raw outputs.

    Attributes:
        boxes, scores: outputs [N, boxes, 4] and [N, boxes, classes].
        raw: in their place, one output with both: a box's four numbers, then its scores.
        raw_rows: whether ``raw`` is [N, boxes, numbers]; else [N, numbers, boxes].
        objectness: whether ``raw`` has a score of the box before those of the classes, which multiplies them.
        picture: the framed input on which the boxes lie; empty where there is one only.
        corners: what the four numbers are.
        unit: pixels of what the model sees, or shares of its width and height.
        activation: of the scores.
        background: the class that is none.
        score: boxes below it go.
        suppress: whether boxes go that overlap a better one by more than ``overlap``.
        overlap: intersection over union.
        per_class: whether boxes of other classes stay.
        candidates: the best boxes that are looked at.
        count: boxes that come out, in the order of their scores; those that are missing have score 0 and class -1.
        rounds: of suppression, see ``detection``.
    """

    boxes: str = ""
    scores: str = ""
    raw: str = ""
    raw_rows: bool = False
    objectness: bool = False
    picture: str = ""
    corners: Literal["xyxy", "cxcywh", "xywh"] = "xyxy"
    unit: Literal["pixels", "share"] = "pixels"
    activation: Literal["none", "softmax", "sigmoid"] = "none"
    background: Literal["none", "first", "last"] = "none"
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.25
    suppress: bool = True
    overlap: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    per_class: bool = True
    candidates: Annotated[int, msgspec.Meta(ge=1, le=2048)] = 256
    count: Annotated[int, msgspec.Meta(ge=1, le=2048)] = 100
    rounds: Annotated[int, msgspec.Meta(ge=2, le=64, multiple_of=2)] = 16
