"""Reference code for a frame (pre- and post-processing that dmlprep adds to a graph), in numpy and Pillow.

The proof compares the framed model on raw pictures with the original between these steps. The frame's own operators and
weights are not used: Pillow resizes in Pillow's modes, and formulas compute OpenCV's modes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from dmlprep.passes.framing import Detect, Frame, Picture, Result
from dmlprep.passes.framing.frame import unfit
from dmlprep.portable.arrays import Array
from dmlprep.runtime.tools.pillow import resize


def inside(frame: Frame | None, feed: Mapping[str, Array], original: ir.Model) -> dict[str, Array]:
    """Return the feed for the original that belongs to a ``feed`` of the framed model: its pictures are converted.

    The pictures get the original's element type, even if the model inside the frame has FP16 inputs, so that the proof
    covers that difference. Without a frame, the feed is returned unchanged.

    Raises:
        UsageError: Pillow is needed, and not installed.
        ModelRefused: DP305, the metadata of the frame contradicts itself.
    """
    pictures = frame.pictures if frame is not None else []
    with _following():
        bare = {p.name: prepared(p, feed[p.name], _type(original, p)) for p in pictures if p.name in feed}
    return {**feed, **bare}


@contextlib.contextmanager
def _following() -> Iterator[None]:
    """Context manager: turn errors caused by contradictory metadata of a frame into ``ModelRefused``."""
    try:
        yield
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise unfit(f"the metadata of the frame is not usable: {error}") from error


def _type(original: ir.Model, picture: Picture) -> str:
    dtype = next((v.dtype for v in original.graph.inputs if v.name == picture.name), None)
    kinds = {ir.DataType.FLOAT: "float32", ir.DataType.FLOAT16: "float16"}
    return picture.model_type if dtype is None else kinds.get(dtype, picture.model_type)


def prepared(picture: Picture, pixels: Array, kind: str = "") -> Array:
    """Convert the app's pictures to the input of the model inside the frame, and return it.

    Args:
        picture: the description of the input in the frame.
        pixels: a batch of pictures, with the type and sizes that the framed model accepts.
        kind: element type of the result (``float32``); empty: that of the model inside the frame.

    Raises:
        UsageError: Pillow is needed, and not installed.
    """
    whole = pixels if picture.layout == "nhwc" else np.moveaxis(pixels, 1, -1)
    pictures = np.stack([_one(picture, one) for one in whole])
    pictures = pictures if picture.model_layout == "nhwc" else np.moveaxis(pictures, -1, 1)
    return np.ascontiguousarray(pictures, kind or picture.model_type)


def _one(picture: Picture, pixels: Array) -> Array:
    """Convert one picture to the model's size, colours and values; return it as [height, width, channels].

    The result is not yet in the model's element type and layout.
    """
    image = _resized(picture, _coloured(picture, pixels))
    canvas = np.full((*picture.model_size, image.shape[2]), picture.fill / 255 * picture.white)
    (y, x), (height, width) = picture.offset, image.shape[:2]
    places = zip((y, x), picture.model_size, (height, width), strict=True)
    rows, columns = (slice(max(0, o), min(m, o + n)) for o, m, n in places)
    canvas[rows, columns] = image[rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]
    if picture.model_type == "uint8":
        return canvas if picture.bytes else np.clip(np.floor(canvas / picture.white * 255 + 0.5), 0, 255)
    values: Array = (canvas / picture.white * picture.scale - np.array(picture.mean)) / np.array(picture.deviation)
    return values


def _coloured(picture: Picture, pixels: Array) -> Array:
    ours, wanted = picture.colour.rstrip("a"), picture.model_colour
    plain = pixels[..., : len(ours) if ours != "gray" else 1]
    if ours == wanted:
        return np.asarray(plain)
    if ours == "gray":
        return np.repeat(plain, 3, -1)
    rgb = plain if ours == "rgb" else plain[..., ::-1]
    if wanted != "gray":
        return rgb if wanted == "rgb" else rgb[..., ::-1]
    # ITU-R 601-2 in whole numbers of 2^-16, as in Pillow.
    total = rgb.astype(np.int64 if picture.bytes else np.float64) @ np.array([19595, 38470, 7471])
    gray: Array = (total + 0x8000 >> 16).astype(np.uint8) if picture.bytes else total / 65536
    return gray[..., None]


def _resized(picture: Picture, image: Array) -> Array:
    library, name = picture.mode.split("-")
    if image.shape[:2] == tuple(picture.resized):
        return image
    if library == "pillow":
        return resize(np.ascontiguousarray(image), picture.resized, name)
    resized = image.astype(np.float64)
    for axis, size in enumerate(picture.resized):
        if resized.shape[axis] != size:
            resized = np.moveaxis(_opencv(name, np.moveaxis(resized, axis, 0), size, picture.bytes), 0, axis)
    # Round to nine digits first: float64 adds errors to a half that OpenCV does not have.
    return np.clip(np.floor(resized.round(9) + 0.5), 0, 255) if picture.bytes and name != "nearest" else resized


def _opencv(name: str, lines: Array, size: int, whole: bool) -> Array:
    """Return an array whose first dimension is resized as OpenCV's documentation of ``InterpolationFlags`` defines it.

    Args:
        name: the mode: ``nearest``, ``area``, ``linear`` or ``cubic``.
        lines: the array, in float64.
        size: new size of the first dimension.
        whole: True for pictures of bytes, for which OpenCV rounds the weights to multiples of 2^-11.
    """
    count = len(lines)
    scale = count / size
    if name == "nearest":
        return np.asarray(lines[np.minimum(np.floor(np.arange(size) / (size / count)).astype(int), count - 1)])
    if name == "area":
        # The integral of the lines, from which a mean over any stretch is the difference of two values.
        sums = np.concatenate([np.zeros_like(lines[:1]), np.cumsum(lines, 0)])
        ends = np.minimum(np.arange(size + 1) * scale, count)
        at = np.minimum(np.floor(ends).astype(int), count - 1)
        part = (ends - at).reshape(-1, *[1] * (lines.ndim - 1))
        return np.asarray(np.diff(sums[at] + part * lines[at], axis=0) / np.diff(ends).reshape(part[1:].shape))
    rows = []
    for index in range(size):
        place = (index + 0.5) * scale - 0.5
        low = math.floor(place)
        reach = 1 if name == "linear" else 2
        near = range(low - reach + 1, low + reach + 1)
        weights = [_kernel(name, abs(place - n)) for n in near]
        if whole:
            weights = [round(w * 2048) / 2048 for w in weights]
        rows.append(sum(lines[min(max(n, 0), count - 1)] * w for n, w in zip(near, weights, strict=True)))
    return np.stack(rows)


def _kernel(name: str, x: float) -> float:
    """Return the weight of a pixel at distance ``x``: the triangle (``linear``), or Keys' cubic with a = -3/4."""
    if name == "linear":
        return max(0.0, 1.0 - x)
    a = -0.75
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def outside(frame: Frame | None, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs that the framed model should give if the original gives ``outputs``.

    Without a frame, they are the same.

    Raises:
        ModelRefused: DP305, the metadata of the frame contradicts itself.
    """
    framed = dict(outputs)
    if frame is None:
        return framed
    with _following():
        for result in frame.results:
            if result.name in outputs:
                del framed[result.name]
                framed |= finished(result, np.asarray(outputs[result.name], np.float64))
        if frame.detect is not None and all(name in outputs for name in frame.detect.raw_outputs):
            for name in frame.detect.raw_outputs:
                del framed[name]
            framed |= detected(
                frame.detect, [np.asarray(outputs[name], np.float64) for name in frame.detect.raw_outputs]
            )
    return framed


def finished(result: Result, output: Array) -> dict[str, Array]:
    """Convert an output of the original (float64) as the frame does: all values, classes, top values or a picture.

    Returns:
        the outputs of the framed model by name, which replace this output.
    """
    output = _activated(result.activation, output, result.axis)
    if result.take == "all":
        return {result.outputs[0]: output.astype(np.float32)}
    if result.take == "argmax":
        return {result.outputs[0]: np.argmax(output, result.axis).astype(result.index_type)}
    if result.take == "topk":
        order = np.argsort(-output, result.axis, kind="stable").take(range(result.top), result.axis)
        values = np.take_along_axis(output, order, result.axis).astype(np.float32)
        return dict(zip(result.outputs, (values, order.astype(result.index_type)), strict=True))
    last = output if result.model_layout == "nhwc" else np.moveaxis(output, 1, -1)
    unit = (last * np.array(result.deviation) + np.array(result.mean)) / result.scale
    levels = np.clip(np.floor(unit * 255 + 0.5), 0, 255).astype(np.uint8)
    if result.colour != result.model_colour:
        levels = np.repeat(levels, 3, -1) if result.model_colour == "gray" else levels[..., ::-1]
    return {result.outputs[0]: np.ascontiguousarray(levels if result.layout == "nhwc" else np.moveaxis(levels, -1, 1))}


def _activated(name: str, values: Array, axis: int) -> Array:
    if name == "softmax":
        powers = np.exp(values - values.max(axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis, keepdims=True))
    return np.asarray(1 / (1 + np.exp(-values))) if name == "sigmoid" else values


def detected(detect: Detect, outputs: list[Array]) -> dict[str, Array]:
    """Return the outputs of a framed detector by name: boxes, scores, classes and their number, best first.

    ``outputs`` are the original's outputs ``detect.raw_outputs``, in float64.
    """
    table = detect.table
    if table.raw:
        rows = outputs[0] if table.raw_rows else np.swapaxes(outputs[0], 1, 2)
        boxes, scores = rows[..., :4], _activated(table.activation, rows[..., 5 if table.objectness else 4 :], -1)
        if table.objectness:
            box = rows[..., 4:5]
            scores = scores * (_activated("sigmoid", box, -1) if table.activation == "sigmoid" else box)
    else:
        boxes, scores = outputs[0], _activated(table.activation, outputs[1], -1)
    scores = {"none": scores, "first": scores[..., 1:], "last": scores[..., :-1]}[table.background]
    per_picture = [_best_boxes(detect, *one) for one in zip(_in_pixels(detect, boxes), scores, strict=True)]
    kinds = (np.float32, np.float32, np.int32, np.int32)
    stacked = (np.stack(parts).astype(kind) for parts, kind in zip(zip(*per_picture, strict=True), kinds, strict=True))
    return dict(zip(detect.outputs, stacked, strict=True))


def _in_pixels(detect: Detect, boxes: Array) -> Array:
    """Return boxes as left, top, right and bottom, in pixels of the model's input."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if detect.table.corners == "cxcywh":
        first, second = first - second / 2, first + second / 2
    elif detect.table.corners == "xywh":
        second = first + second
    height, width = detect.model_size if detect.table.unit == "share" else (1, 1)
    return np.asarray(np.concatenate([first, second], -1) * np.array([width, height, width, height]))


def _best_boxes(detect: Detect, boxes: Array, scores: Array) -> tuple[Array, Array, Array, Array]:
    """Select the boxes of one picture by the textbook loop of non-maximum suppression.

    ``boxes`` are as ``_in_pixels`` returns them, ``scores`` are [boxes, classes].

    Returns:
        boxes in pixels of the app's picture, scores, classes, and the number of boxes. Unused rows are 0, and -1 for
        classes.
    """
    table = detect.table
    score, kind = scores.max(-1), scores.argmax(-1)
    survivors: list[int] = []
    for index in np.argsort(-score, kind="stable")[: table.candidates]:
        rivals = [k for k in survivors if kind[k] == kind[index] or not table.per_class] if table.suppress else []
        if score[index] > table.score and all(_overlap(boxes[k], boxes[index]) <= table.overlap for k in rivals):
            survivors.append(int(index))
    number = min(len(survivors), table.count)
    chosen = survivors[:number]
    places = np.zeros((table.count, 4))
    (y, x), (height, width) = detect.offset, detect.size
    shifted = boxes[chosen] - np.array([x, y, x, y])
    rows, columns = (size / resized for size, resized in zip(detect.size, detect.resized, strict=True))
    places[:number] = np.clip(shifted * np.array([columns, rows, columns, rows]), 0, [width, height, width, height])
    best, kinds = np.zeros(table.count), np.full(table.count, -1)
    best[:number], kinds[:number] = score[chosen], kind[chosen]
    return places, best, kinds, np.array(number)


def _overlap(one: Array, other: Array) -> float:
    """Return the intersection of two boxes divided by their union; 0 if the union is empty."""
    width, height = (min(one[n + 2], other[n + 2]) - max(one[n], other[n]) for n in (0, 1))
    common = max(0.0, width) * max(0.0, height)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    union = areas[0] + areas[1] - common
    return float(common / union) if union > 0 else 0.0
