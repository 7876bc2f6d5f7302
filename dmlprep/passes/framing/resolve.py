"""Resolve the frame options of a recipe for one model, into a frame with all its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.passes.framing.frame import Detect, Frame, Layout, Picture, Result
from dmlprep.passes.framing.options import MOST_NUMBERS, MOST_SIDE, DetectOptions, PictureOptions, ResultOptions

_OPSET = 11
"""The lowest opset of a model that can get a frame."""

Size = tuple[int, int]


def resolve(
    model: ir.Model,
    inputs: Mapping[str, PictureOptions],
    outputs: Mapping[str, ResultOptions] | None = None,
    detect: DetectOptions | None = None,
) -> Frame:
    """Return the frame for a model with fixed sizes; the model is unchanged.

    ``inputs``, ``outputs``: options by the name of the model's input or output; ``detect``: options of a detector.

    Raises:
        ModelRefused: DP305, some options do not fit the model, or its opset is below 11.
    """
    version = model.graph.opset_imports.get("", 1)
    if version < _OPSET:
        raise refused("", f"a frame needs opset {_OPSET}, the model has {version}", "put [step.opset] before it")
    pictures = [_picture(model, name, options) for name, options in inputs.items()]
    return Frame(
        pictures=pictures,
        detect=_detect(model, pictures, detect, outputs or {}) if detect is not None else None,
        results=[_result(model, name, options) for name, options in (outputs or {}).items()],
    )


def refused(where: str, what: str, fix: str) -> ModelRefused:
    """Return the error DP305: options that do not fit the model."""
    return ModelRefused(what, where=where, code="DP305", fix=fix)


def _picture(model: ir.Model, name: str, options: PictureOptions) -> Picture:
    where = f"frame.inputs.{name}"
    sizes, kind = _input(model, name, where)
    layout, model_colour, channels = _channels(options, sizes, where)
    wanted = (sizes[2], sizes[3]) if layout == "nchw" else (sizes[1], sizes[2])
    mean, deviation = _moments(options, channels, where)
    if kind == "uint8" and (options.scale != 1.0 or any(mean) or set(deviation) != {1.0}):
        raise refused(where, "the model needs bytes: it has no scale, mean or deviation", "remove these fields")
    if kind == "uint8" and options.white not in (None, 255.0) and options.type == "uint8":
        raise refused(where, "the model and the app have bytes: white is 255 in both", "remove white")
    if options.model_size not in (None, wanted):
        text = f"the model needs {wanted[0]} x {wanted[1]}, but model_size is {options.model_size}"
        raise refused(where, text, "pin the model's height and width to model_size")
    numbers = 4 if options.colour.endswith("a") else channels
    size, resized, offset = _resize(options, wanted, sizes[0], numbers, where)
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


def _input(model: ir.Model, name: str, where: str) -> tuple[list[int], Literal["uint8", "float16", "float32"]]:
    """Return the shape of a picture input, and its element type.

    Raises:
        ModelRefused: DP305, the model has no such input, or the input cannot be a picture of fixed size.
    """
    names = [v.name or "" for v in model.graph.inputs if v.name not in model.graph.initializers]
    value = next((v for v in model.graph.inputs if v.name == name and name in names), None)
    if value is None:
        raise refused(where, f"the model has no input {name!r}", f"its inputs: {', '.join(names) or 'none'}")
    dims = list(value.shape) if value.shape is not None else []
    if len(dims) != 4:
        raise refused(where, f"the input has {len(dims)} dimensions, but a picture has four", "frame another input")
    sizes = _fixed(dims, where)
    kinds: dict[ir.DataType | None, Literal["uint8", "float16", "float32"]]
    kinds = {ir.DataType.FLOAT: "float32", ir.DataType.FLOAT16: "float16", ir.DataType.UINT8: "uint8"}
    if value.dtype not in kinds:
        raise refused(where, f"the input is {value.dtype}: a frame supports FP32, FP16 or uint8", "frame another input")
    return sizes, kinds[value.dtype]


def _fixed(dims: list[int | ir.SymbolicDim], where: str) -> list[int]:
    """Return ``dims`` as integers.

    Raises:
        ModelRefused: DP305, ``dims`` is empty, or a size is not fixed or is 0.
    """
    if not dims or not all(isinstance(d, int) and d > 0 for d in dims):
        raise refused(where, f"its sizes are not fixed: {dims}", "pin them: [step.pin] before the frame, or --pin")
    return [int(d) for d in dims]  # type: ignore[arg-type]


def _placed(options: PictureOptions, size: Size, model: Size) -> tuple[Size, Size] | str:
    """Return height and width after the resize, and the resized picture's corner in the model's picture.

    Returns an error text instead if the resized picture is smaller than the model's. The corner is row and column.

    ``crop`` by the shorter side makes the longer one ``int(side * long / short)``, as torchvision and transformers do;
    ``letterbox`` rounds both sides, as Ultralytics does.
    """
    if options.fit == "stretch":
        return model, (0, 0)
    height, width = size
    if options.fit == "letterbox":
        ratio = min(model[0] / height, model[1] / width)
        resized = max(1, round(height * ratio)), max(1, round(width * ratio))
        if options.place == "corner":
            return resized, (0, 0)
        return resized, ((model[0] - resized[0]) // 2, (model[1] - resized[1]) // 2)
    match options.resized:
        case None:
            ratio = max(model[0] / height, model[1] / width)
            resized = max(model[0], round(height * ratio)), max(model[1], round(width * ratio))
        case int(side):
            resized = (side, int(side * width / height)) if height <= width else (int(side * height / width), side)
        case pair:
            resized = pair
    if resized[0] < model[0] or resized[1] < model[1]:
        return f"resized to {resized[0]} x {resized[1]} it is smaller than the model's {model[0]} x {model[1]}"
    spare = resized[0] - model[0], resized[1] - model[1]
    # Python's round rounds halves to the even number, as torchvision's center_crop does.
    halves = [s // 2 if options.odd == "floor" else round(s / 2) for s in spare]
    return resized, (-halves[0], -halves[1])


def _resize(options: PictureOptions, wanted: Size, batch: int, channels: int, where: str) -> tuple[Size, Size, Size]:
    """Return the size of the app's pictures, their size after the resize, and their corner in the model's picture.

    Args:
        wanted: height and width of the model's picture.

    Raises:
        ModelRefused: DP305, the sizes do not fit each other or are too large.
    """
    size = options.size or wanted
    sides = options.resized if isinstance(options.resized, tuple) else (options.resized or 1,)
    if min(sides) < 1 or max(sides) > MOST_SIDE:
        raise refused(where, f"'resized' is {options.resized}", f"set sides of 1 to {MOST_SIDE}")
    placed = _placed(options, size, wanted)
    if isinstance(placed, str):
        raise refused(where, placed, "set a larger 'resized', or another 'fit'")
    resized, offset = placed
    (height, width), (high, wide) = size, resized
    if max(resized) > MOST_SIDE:
        text = f"pictures of {height} x {width} become {high} x {wide} before cropping"
        raise refused(where, text, f"set a picture size closer to the model's: sides of at most {MOST_SIDE}")
    numbers = batch * channels * max(height * width, high * wide)
    if numbers > MOST_NUMBERS:
        text = f"{numbers} numbers: {batch} x {height} x {width} pixels, resized to {high} x {wide}"
        raise refused(where, text, f"set sizes or a batch of at most {MOST_NUMBERS} numbers")
    if options.resize == "opencv-area":
        _check_area(size, resized, where, bytes_=options.type == "uint8")
    return size, resized, offset


def _check_area(size: Size, resized: Size, where: str, *, bytes_: bool) -> None:
    """Check the sizes of a resize with OpenCV's INTER_AREA.

    Raises:
        ModelRefused: DP305, a side grows, so that INTER_AREA does not only average, or sums of bytes exceed FP32.
    """
    if resized[0] > size[0] or resized[1] > size[1]:
        text = f"OpenCV's INTER_AREA only averages when both sides shrink: here {size} becomes {resized}"
        raise refused(where, text, 'resize = "opencv-linear"')
    units = [s // math.gcd(s, r) for s, r in zip(size, resized, strict=True)]
    if bytes_ and 255 * math.prod(units) >= 1 << 24:
        text = f"INTER_AREA from {size} to {resized} sums more than FP32 holds exactly: the sizes share no divisor"
        raise refused(where, text, 'resize = "pillow-box", or a size of the pictures that shares a divisor')


def _result(model: ir.Model, name: str, options: ResultOptions) -> Result:
    where = f"frame.outputs.{name}"
    sizes = _output(model, name, where)
    if not -len(sizes) <= options.axis < len(sizes):
        raise refused(where, f"axis {options.axis} is not one of {len(sizes)} dimensions", "set another axis")
    axis = options.axis % len(sizes)
    if options.take == "topk" and options.top > sizes[axis]:
        raise refused(
            where, f"top is {options.top}, but the axis has {sizes[axis]} numbers", f"set top to at most {sizes[axis]}"
        )
    if options.take in ("argmax", "topk") and options.index_type == "uint8" and sizes[axis] > 256:
        raise refused(where, f"uint8 is too small for indices of {sizes[axis]}", 'index_type = "int32"')
    layout: Layout = "nchw"
    model_colour: Literal["rgb", "bgr", "gray"] = "rgb"
    mean, deviation = [0.0], [1.0]
    if options.take == "picture":
        if len(sizes) != 4:
            raise refused(
                where, f"the output has {len(sizes)} dimensions, but a picture has four", "choose another output"
            )
        layout, model_colour, channels = _channels(options, sizes, where)
        mean, deviation = _moments(options, channels, where)
        if options.colour == "gray" and model_colour != "gray":
            raise refused(where, "the model returns a picture in colour, but colour is gray", 'colour = "rgb" or "bgr"')
    names = [f"{name}_values", f"{name}_indices"] if options.take == "topk" else [name]
    fields = {"axis": axis, "model_layout": layout, "model_colour": model_colour, "mean": mean, "deviation": deviation}
    return Result(name=name, outputs=names, **msgspec.structs.asdict(options) | fields)


def _output(model: ir.Model, name: str, where: str) -> list[int]:
    """Return the shape of an output.

    Raises:
        ModelRefused: DP305, no output or several outputs have this name, it is neither FP32 nor FP16, or its sizes are
            not fixed.
    """
    names = [v.name or "" for v in model.graph.outputs]
    if names.count(name) != 1:
        what = "no output" if name not in names else "more than one output"
        raise refused(where, f"the model has {what} {name!r}", f"its outputs: {', '.join(names)}")
    value = model.graph.outputs[names.index(name)]
    if value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        raise refused(where, f"the output is {value.dtype}: a frame needs FP32 or FP16", "leave it to the app")
    return _fixed(list(value.shape) if value.shape is not None else [], where)


_BOX_OUTPUTS = ["detected_boxes", "detected_scores", "detected_classes", "detected_count"]


def _detect(
    model: ir.Model, pictures: list[Picture], options: DetectOptions, outputs: Mapping[str, ResultOptions]
) -> Detect:
    where = "frame.detect"
    if bool(options.raw) == bool(options.boxes) or bool(options.boxes) != bool(options.scores):
        raise refused(
            where, "it needs either 'raw', or both 'boxes' and 'scores'", "set 'raw' alone, or 'boxes' and 'scores'"
        )
    names = [options.raw] if options.raw else [options.boxes, options.scores]
    if both := [name for name in names if name in outputs]:
        raise refused(where, f"output {both[0]!r} is in frame.outputs too", "remove one of the two tables")
    shapes = [_output(model, name, where) for name in names]
    if any(len(shape) != 3 for shape in shapes):
        raise refused(where, f"the outputs are {shapes}, but must have three dimensions", "name other outputs")
    if options.raw:
        batch, count, numbers = shapes[0] if options.raw_rows else [shapes[0][n] for n in (0, 2, 1)]
        classes = numbers - (5 if options.objectness else 4)
    else:
        (batch, count, numbers), scores = shapes
        classes = scores[2]
        if numbers != 4 or scores[:2] != [batch, count]:
            raise refused(
                where,
                f"the outputs are {shapes}, not [N, boxes, 4] and [N, boxes, classes]",
                "use 'raw', or name other outputs",
            )
        if options.objectness:
            raise refused(where, "objectness works only with 'raw'", "remove objectness, or use 'raw'")
    classes -= options.background != "none"
    if classes < 1:
        raise refused(
            where,
            f"the shape {shapes[-1]} leaves no numbers for the scores of classes",
            "set raw_rows, or another background",
        )
    candidates = [p for p in pictures if options.picture in ("", p.name)]
    if len(candidates) != 1:
        known = ", ".join(p.name for p in pictures) or "none"
        raise refused(
            where,
            "the picture that the boxes belong to is not clear",
            f"set 'picture' to one of the framed inputs: {known}",
        )
    picture = candidates[0]
    if picture.batch != batch:
        raise refused(
            where,
            f"the batch of the pictures is {picture.batch}, that of the boxes {batch}",
            "name another picture or output",
        )
    best = min(options.candidates, count)
    return Detect(
        table=msgspec.structs.replace(options, candidates=best, count=min(options.count, best)),
        raw_outputs=names,
        outputs=_BOX_OUTPUTS,
        model_size=picture.model_size,
        size=picture.size,
        resized=picture.resized,
        offset=picture.offset,
    )


def _channels(
    options: PictureOptions | ResultOptions, sizes: list[int], where: str
) -> tuple[Layout, Literal["rgb", "bgr", "gray"], int]:
    """Return the layout of the model's picture, its colours, and the number of channels.

    Raises:
        ModelRefused: DP305, the shape is ambiguous, or does not fit the colours.
    """
    layout = _layout(options, sizes, where)
    channels = sizes[1] if layout == "nchw" else sizes[3]
    colour = options.model_colour
    if colour == "auto":
        colour = "gray" if channels == 1 else "rgb"
    if channels != (1 if colour == "gray" else 3):
        text = f"the model has {channels} channels, but colour is {colour}"
        raise refused(where, text, "set model_colour, or model_layout where the channels are another dimension")
    return layout, colour, channels


def _moments(options: PictureOptions | ResultOptions, channels: int, where: str) -> tuple[list[float], list[float]]:
    mean = _per_channel("mean", options.mean, channels, where)
    return mean, _per_channel("deviation", options.deviation, channels, where)


def _layout(options: PictureOptions | ResultOptions, sizes: list[int], where: str) -> Layout:
    if options.model_layout != "auto":
        return options.model_layout
    first, last = sizes[1] in (1, 3), sizes[3] in (1, 3)
    if first == last:
        text = f"the shape {sizes} does not show which dimension has the channels"
        raise refused(where, text, 'set model_layout = "nchw" or "nhwc"')
    return "nchw" if first else "nhwc"


def _per_channel(what: str, value: float | list[float], channels: int, where: str) -> list[float]:
    numbers = [float(n) for n in value] if isinstance(value, list) else [float(value)] * channels
    if len(numbers) != channels:
        text = f"{what} has {len(numbers)} numbers, the model has {channels} channels"
        raise refused(where, text, "set one number, or one for each channel")
    return numbers
