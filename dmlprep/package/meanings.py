"""Find the meaning of a model's inputs and outputs for an app: pictures, boxes, indices, probabilities ...

It comes from the metadata of a frame (pre- and post-processing that dmlprep added), or from the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import onnx_ir as ir

from dmlprep.core.text.markdown import code, text
from dmlprep.graph.model import Model
from dmlprep.package.contract import AppPicture, Meaning, Tensor
from dmlprep.parity.feeds.roles import index_limit
from dmlprep.passes.framing import Detect, Frame, Picture, Result, frame_of
from dmlprep.passes.framing.frame import unfit

Side: TypeAlias = Literal["input", "output"]

TEXTS: dict[Meaning, str] = {
    "": "",
    "picture": "a picture",
    "indices": "indices into a table of the model",
    "flags": "flags, 0 or 1",
    "mask": "a mask: 1 for elements that count, 0 for padding",
    "boxes": "left, top, right and bottom of each box; 0 for unused boxes",
    "scores": "the score of each box, falling; 0 for unused boxes",
    "classes": "the class of each box; -1 for unused boxes",
    "count": "the number of boxes",
    "probabilities": "probabilities",
    "largest index": "the index of the largest number",
    "top values": "in falling order, the largest numbers",
    "top indices": "the indices of the largest numbers",
}
"""Descriptions for the README, by the word for a meaning in the contract."""

SAY_THEIR_RANGE: frozenset[Meaning] = frozenset(("flags", "mask"))
"""Meanings whose description contains the range."""

_BYTE = (0.0, 255.0)
_SHARE = (0.0, 1.0)


@dataclass(frozen=True)
class Known:
    """The known facts about one input or output; the fields are those of ``contract.Tensor``."""

    meaning: Meaning = ""
    about: str = ""
    range: tuple[float, float] | None = None
    picture: AppPicture | None = None
    layout: str = ""


def meanings(model: Model) -> dict[tuple[Side, str], Known]:
    """Return the known facts about the inputs and outputs of a model, by side (``input``, ``output``) and name.

    Inputs and outputs whose meaning is unknown are left out.

    Raises:
        ModelRefused: the metadata of the frame does not fit the model.
    """
    by_name: dict[tuple[Side, str], Known] = {}
    for value in model.ir.graph.inputs:
        if value.dtype == ir.DataType.BOOL:
            by_name["input", value.name or ""] = Known("flags", range=_SHARE)
        elif value.dtype is not None and value.dtype.is_integer() and "mask" in (value.name or "").lower():
            by_name["input", value.name or ""] = Known("mask", range=_SHARE)
        elif value.dtype is not None and value.dtype.is_integer() and (rows := index_limit(model, value)) is not None:
            by_name["input", value.name or ""] = Known("indices", range=(0.0, float(rows - 1)))
    frame = frame_of(model.ir)
    if frame is not None:
        by_name |= {("input", picture.name): _picture(picture, model) for picture in frame.pictures}
        for result in frame.results:
            by_name |= {("output", name): known for name, known in _result(result, model)}
        if frame.detect is not None:
            by_name |= {("output", name): known for name, known in _detect(frame.detect, frame)}
    return by_name


def sentence(one: Tensor) -> str:
    """Return a phrase in Markdown about the meaning of an input or output; empty if the meaning is unknown."""
    if not one.meaning:
        return ""
    words = TEXTS[one.meaning]
    picture = one.picture
    if one.meaning == "picture" and picture is not None:
        words += f" of {picture.size[0]} x {picture.size[1]} (height x width), {text(one.layout)}, "
        words += text(picture.colour.upper())
    if one.meaning == "boxes" and picture is not None:
        words += f", in pixels of {code(one.about)} ({picture.size[0]} x {picture.size[1]})"
    elif one.about:
        words += f" of {code(one.about)}"
    if one.range is not None and one.meaning not in SAY_THEIR_RANGE:
        words += f", {one.range[0]:g} to {one.range[1]:g}"
    if picture is not None and picture.model_size is not None:
        height, width = picture.model_size
        same = picture.model_size == picture.size
        words += "; the model gets it unchanged" if same else f"; the graph resizes it to {height} x {width}"
        words += "" if same else f" ({text(picture.fit)}, {text(picture.resize)})"
    return words


def _picture(picture: Picture, model: Model) -> Known:
    shape = next((v.shape for v in model.ir.graph.inputs if v.name == picture.name), None)
    if tuple(shape or ()) != picture.shape:
        raise unfit(f"the metadata of the frame names another input than {picture.name!r}")
    app = AppPicture(
        size=picture.size,
        colour=picture.colour,
        white=picture.white,
        fit=_fit(picture),
        resize=picture.mode,
        model_size=picture.model_size,
    )
    most = 255.0 if picture.bytes else picture.white
    return Known("picture", range=(0.0, most), picture=app, layout=picture.layout.upper())


def _fit(picture: Picture) -> Literal["stretch", "crop", "letterbox"]:
    """Return how the graph brings a picture to the model's size: ``stretch``, ``crop`` or ``letterbox``."""
    rows, columns = picture.offset
    inner, model = picture.resized, picture.model_size
    if rows < 0 or columns < 0 or inner[0] > model[0] or inner[1] > model[1]:
        return "crop"
    return "letterbox" if inner != model else "stretch"


def _result(result: Result, model: Model) -> Iterator[tuple[str, Known]]:
    share = _SHARE if result.activation != "none" else None
    about = result.name
    known: tuple[Known, ...] = ()
    if result.take == "picture":
        app = AppPicture(size=_sides(model, result), colour=result.colour, white=255.0)
        known = (Known("picture", range=_BYTE, picture=app, layout=result.layout.upper()),)
    elif result.take == "argmax":
        known = (Known("largest index"),)
    elif result.take == "topk":
        known = (Known("top values", about, share), Known("top indices", about))
    elif share is not None:
        known = (Known("probabilities", range=share),)
    return zip(result.outputs, known, strict=False)


def _sides(model: Model, result: Result) -> tuple[int, int]:
    """Return height and width, in pixels, of an output that is a picture; 0 for a free size.

    Raises:
        ModelRefused: the output does not have four dimensions.
    """
    shape = next((v.shape for v in model.ir.graph.outputs if v.name in result.outputs), None)
    sizes = [d if isinstance(d, int) else 0 for d in shape or ()]
    if len(sizes) != 4:
        raise unfit(f"the metadata of the frame names a picture, but {result.name!r} has {len(sizes)} dimensions")
    return (sizes[1], sizes[2]) if result.layout == "nhwc" else (sizes[2], sizes[3])


def _detect(detect: Detect, frame: Frame) -> Iterator[tuple[str, Known]]:
    about = detect.table.picture or (frame.pictures[0].name if frame.pictures else "")
    picture = frame.picture(about)
    app = AppPicture(size=detect.size, colour=picture.colour, white=picture.white) if picture is not None else None
    known = (
        Known("boxes", about, (0.0, float(max(detect.size))), app),
        Known("scores", range=_SHARE if detect.table.activation != "none" else None),
        Known("classes"),
        Known("count", range=(0.0, float(detect.table.count))),
    )
    return zip(detect.outputs, known, strict=False)
