"""From the tables of a recipe to a frame with all its numbers, for one model."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx_ir as ir

from dmlprep.errors import ModelRefused
from dmlprep.framing.frame import Frame, Layout, Picture
from dmlprep.framing.geometry import place
from dmlprep.framing.options import MOST_SIDE, PictureOptions

__all__ = ["refused", "resolve"]

_OPSET = 11
"""The operators of a frame are written as this version of ONNX has them, and later ones."""


def resolve(model: ir.Model, inputs: Mapping[str, PictureOptions]) -> Frame:
    """The frame of a model whose sizes are fixed.

    Raises:
        ModelRefused: DP305, a table does not fit the model: the text says why.
    """
    version = model.graph.opset_imports.get("", 1)
    if version < _OPSET:
        raise refused("step frame", f"a frame needs opset {_OPSET}, the model has {version}", "put [step.opset] before")
    return Frame(pictures=[_picture(model, name, options) for name, options in inputs.items()])


def refused(where: str, what: str, fix: str) -> ModelRefused:
    """DP305."""
    return ModelRefused(what, where=where, code="DP305", fix=fix)


def _picture(model: ir.Model, name: str, options: PictureOptions) -> Picture:
    where = f"frame.inputs.{name}"
    names = [v.name or "" for v in model.graph.inputs if v.name not in model.graph.initializers]
    value = next((v for v in model.graph.inputs if v.name == name and name in names), None)
    if value is None:
        raise refused(where, f"the model has no input {name!r}", f"its inputs: {', '.join(names) or 'none'}")
    dims = list(value.shape) if value.shape is not None else []
    if len(dims) != 4:
        raise refused(where, f"the input has {len(dims)} dimensions: a picture has four", "frame another input")
    if not all(isinstance(d, int) and d > 0 for d in dims):
        raise refused(where, f"its sizes are not fixed: {dims}", "pin them: [step.pin] before the frame, or --pin")
    sizes = [int(d) for d in dims]  # type: ignore[arg-type]
    kinds = {ir.DataType.FLOAT: "float32", ir.DataType.FLOAT16: "float16", ir.DataType.UINT8: "uint8"}
    kind = kinds.get(value.dtype) if value.dtype is not None else None
    if kind is None:
        raise refused(where, f"the input takes {value.dtype}: a frame gives FP32, FP16 or uint8", "frame another input")
    layout = _layout(options, sizes, where)
    channels = sizes[1] if layout == "nchw" else sizes[3]
    wanted = (sizes[2], sizes[3]) if layout == "nchw" else (sizes[1], sizes[2])
    model_colour = options.model_colour
    if model_colour == "auto":
        model_colour = "gray" if channels == 1 else "rgb"
    if channels != (1 if model_colour == "gray" else 3):
        text = f"the model has {channels} channels, and {model_colour} is asked for"
        raise refused(where, text, "set model_colour, or model_layout where the channels are another dimension")
    mean, deviation = (
        _per_channel(n, v, channels, where) for n, v in (("mean", options.mean), ("deviation", options.deviation))
    )
    if kind == "uint8" and (options.scale != 1.0 or any(mean) or set(deviation) != {1.0}):
        raise refused(where, "the model takes bytes: it has no scale, mean or deviation", "leave these fields out")
    if kind == "uint8" and options.white not in (None, 255.0) and options.type == "uint8":
        raise refused(where, "the model and the app have bytes: white is 255 in both", "leave white out")
    size = options.size or wanted
    sides = options.resized if isinstance(options.resized, tuple) else (options.resized or 1,)
    if min(sides) < 1 or max(sides) > MOST_SIDE:
        raise refused(where, f"'resized' is {options.resized}", f"give sides of 1 to {MOST_SIDE}")
    placed = place(options, size, wanted)
    if isinstance(placed, str):
        raise refused(where, placed, "give a larger 'resized', or another 'fit'")
    resized, offset = placed
    if options.resize == "opencv-area" and (resized[0] > size[0] or resized[1] > size[1]):
        text = f"OpenCV's INTER_AREA only averages when both sides shrink: here {size} becomes {resized}"
        raise refused(where, text, 'resize = "opencv-linear"')
    if options.resize == "opencv-area" and options.type == "uint8":
        units = [s // math.gcd(s, r) for s, r in zip(size, resized, strict=True)]
        if 255 * math.prod(units) >= 1 << 24:
            text = f"INTER_AREA from {size} to {resized} sums more than FP32 holds: the sizes have no common divisor"
            raise refused(where, text, 'resize = "pillow-box", or a size of the pictures that shares a divisor')
    return Picture(
        name=name,
        batch=sizes[0],
        size=size,
        type=options.type,
        layout=options.layout,
        colour=options.colour,
        white=options.white or (255.0 if options.type == "uint8" else 1.0),
        mode=options.resize,
        resized=resized,
        offset=offset,
        fill=options.fill,
        scale=options.scale,
        mean=mean,
        deviation=deviation,
        model_size=wanted,
        model_type=kind,
        model_layout=layout,
        model_colour=model_colour,
    )


def _layout(options: PictureOptions, sizes: list[int], where: str) -> Layout:
    if options.model_layout != "auto":
        return options.model_layout
    first, last = sizes[1] in (1, 3), sizes[3] in (1, 3)
    if first == last:
        text = f"the shape {sizes} does not tell which dimension has the channels"
        raise refused(where, text, 'set model_layout = "nchw" or "nhwc"')
    return "nchw" if first else "nhwc"


def _per_channel(what: str, given: float | list[float], channels: int, where: str) -> list[float]:
    numbers = [float(n) for n in given] if isinstance(given, list) else [float(given)] * channels
    if len(numbers) != channels:
        text = f"{what} has {len(numbers)} numbers, the model has {channels} channels"
        raise refused(where, text, "give one number, or one for each channel")
    return numbers
