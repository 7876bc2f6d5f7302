"""The options of a frame in a recipe: tables for inputs, outputs and a detector."""

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
"""The library and the filter of a resize: Pillow's ``Resampling``, OpenCV's ``INTER_``. When a picture shrinks,
Pillow's filters average (except nearest); of OpenCV's only ``area`` does."""

MOST_SIDE = 16384
"""The largest side of a picture in pixels: the limit of a Direct3D texture."""

MOST_NUMBERS = 1 << 27
"""The most numbers in all pictures of one call, before or after the resize. An 8K colour picture has 100 million."""

Size = Annotated[int, msgspec.Meta(ge=1, le=MOST_SIDE)]
Finite = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Above = Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)]
"""A positive number that may be a divisor. Within these bounds, quotients stay in the range of FP32."""


class PictureOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Options of a framed input: the app's pictures. They become ``(value / white * scale - mean) / deviation``.

    A model that reads bytes gets whole numbers from 0 to 255, without scale, mean and deviation.

    Attributes:
        size: height and width of the app's pictures; ``None``: the model's height and width.
        type: element type of the app's pictures.
        layout: order of the dimensions of the app's pictures.
        colour: channels of the app's pictures, in order; alpha is ignored.
        white: the number for white in the app's pictures; by default 255 for bytes and 1 for other types.
        fit: how a picture gets the model's size. ``stretch``: both sides are resized. ``crop``: it is resized until it
            covers the model's size, and the middle is cut out. ``letterbox``: it is resized to fit inside, with
            ``fill`` around it.
        resize: the library and filter of the resize.
        resized: for ``crop``: the shorter side, or height and width, before the middle is cut out; ``None``: just large
            enough to cover the model's size.
        odd: for ``crop``: how half of an odd number of surplus rows or columns is rounded: down (``floor``, as
            transformers), or to the even number (``even``, as torchvision).
        place: for ``letterbox``: the picture is in the centre, or at the top left corner.
        fill: for ``letterbox``: brightness of the border, 0 (black) to 255 (white).
        scale: the number for white in the model, before mean and deviation.
        model_size: height and width that the model must have; a model of another size is refused.
        mean, deviation: one number, or one for each channel in the model's order.
        model_layout: the model's layout, where its shape is ambiguous.
        model_colour: the order of the model's channels; ``auto`` is gray for one channel, and RGB for three.
    """

    size: tuple[Size, Size] | None = None
    type: Literal["uint8", "float16", "float32"] = "uint8"
    layout: Literal["nhwc", "nchw"] = "nhwc"
    colour: Literal["rgb", "bgr", "rgba", "bgra", "gray"] = "rgb"
    white: Above | None = None
    fit: Literal["stretch", "crop", "letterbox"] = "stretch"
    resize: Mode = "pillow-bilinear"
    # msgspec 0.22 crashes on a bounded number next to a tuple, so ``resolve`` checks the bounds.
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
    """Options of a framed output: the result that the app needs.

    Attributes:
        activation: the function that is applied to the output first.
        axis: axis of ``softmax``, and of ``argmax`` and ``topk``.
        take: the part that the app gets. ``all``: the whole output. ``argmax``: the index of the largest number.
            ``topk``: the ``top`` largest numbers and their indices. ``picture``: a picture of bytes.
        top: how many numbers ``topk`` returns.
        index_type: element type of indices.
        layout: order of the dimensions of a picture.
        colour: channels of a picture, in order.
        scale, mean, deviation: for a picture: ``(value * deviation + mean) / scale`` is 1 for white, where ``value`` is
            the model's number.
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
    """Options of a framed detector: boxes that an app can draw, instead of the model's raw outputs.

    Attributes:
        boxes, scores: names of the outputs [N, boxes, 4] and [N, boxes, classes].
        raw: alternatively, the name of one output with both: a box's four numbers, then its scores.
        raw_rows: whether ``raw`` is [N, boxes, numbers]; by default it is [N, numbers, boxes].
        objectness: whether ``raw`` has a score of the box before the scores of the classes, which it multiplies.
        picture: name of the framed input to which the boxes refer; may be empty if there is only one.
        corners: the meaning of a box's four numbers: two corners, centre and size, or top left corner and size.
        unit: unit of these numbers: pixels of the model's picture, or shares of its width and height.
        activation: the function that is applied to the scores.
        background: which class means background and is left out: none, the first, or the last.
        score: boxes with this score or a lower one are dropped.
        suppress: whether to drop boxes that overlap a better one by more than ``overlap``.
        overlap: the largest accepted intersection over union of two boxes.
        per_class: whether only boxes of the same class suppress each other.
        candidates: largest number of boxes, those with the best scores, that are compared with each other.
        count: number of boxes in the output, at most those compared, best score first. Unused places have score 0 and
            class -1.
        rounds: rounds of suppression (see the module ``outputs``).
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
