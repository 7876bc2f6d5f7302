"""What a frame stands for, as an app would do it without one: in numpy and Pillow, and not in the frame's operators.

The framed model on raw pictures is held against the original behind this. Weights and matrices of the frame are not
used here: Pillow resizes where the mode is Pillow's, and OpenCV's modes are written out by their formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlprep.engines.pillow import resize
from dmlprep.framing import Frame, Picture, Result

__all__ = ["finished", "inside", "outside", "prepared"]

Array = np.ndarray[Any, Any]


def inside(frame: Frame | None, feed: Mapping[str, Array]) -> dict[str, Array]:
    """What the original gets where the framed model gets ``feed``.

    Raises:
        UsageError: Pillow is not installed.
    """
    pictures = frame.pictures if frame is not None else []
    return {**feed, **{p.name: prepared(p, feed[p.name]) for p in pictures if p.name in feed}}


def prepared(picture: Picture, given: Array) -> Array:
    """The app's pictures as the model takes them.

    Args:
        given: of the type and the sizes that the frame has.

    Raises:
        UsageError: Pillow is not installed.
    """
    whole = given if picture.layout == "nhwc" else np.moveaxis(given, 1, -1)
    made = np.stack([_one(picture, one) for one in whole])
    made = made if picture.model_layout == "nhwc" else np.moveaxis(made, -1, 1)
    return np.ascontiguousarray(made, picture.model_type)


def _one(picture: Picture, given: Array) -> Array:
    """One picture, [height, width, channels] float64 before the model's type."""
    image = _resized(picture, _coloured(picture, given))
    channels = image.shape[2]
    canvas = np.full((*picture.model_size, channels), picture.fill / 255 * picture.white)
    (top, left), (height, width) = picture.offset, image.shape[:2]
    rows, columns = (
        slice(max(0, o), min(m, o + n))
        for o, m, n in zip((top, left), picture.model_size, (height, width), strict=True)
    )
    canvas[rows, columns] = image[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]
    if picture.model_type == "uint8":
        return canvas if picture.bytes else np.clip(np.floor(canvas / picture.white * 255 + 0.5), 0, 255)
    made: Array = (canvas / picture.white * picture.scale - np.array(picture.mean)) / np.array(picture.deviation)
    return made


def _coloured(picture: Picture, given: Array) -> Array:
    ours, wanted = picture.colour.rstrip("a"), picture.model_colour
    plain = given[..., : len(ours) if ours != "gray" else 1]
    if ours == wanted:
        return np.asarray(plain)
    if ours == "gray":
        return np.repeat(plain, 3, -1)
    rgb = plain if ours == "rgb" else plain[..., ::-1]
    if wanted != "gray":
        return rgb if wanted == "rgb" else rgb[..., ::-1]
    # ITU-R 601-2 in whole numbers of 2^-16, as Pillow has it.
    total = rgb.astype(np.int64 if picture.bytes else np.float64) @ np.array([19595, 38470, 7471])
    gray: Array = (total + 0x8000 >> 16).astype(np.uint8) if picture.bytes else total / 65536
    return gray[..., None]


def _resized(picture: Picture, image: Array) -> Array:
    library, name = picture.mode.split("-")
    if image.shape[:2] == tuple(picture.resized):
        return image
    if library == "pillow":
        return resize(np.ascontiguousarray(image), picture.resized, name)
    made = image.astype(np.float64)
    for axis, size in enumerate(picture.resized):
        if made.shape[axis] != size:
            made = np.moveaxis(_opencv(name, np.moveaxis(made, axis, 0), size, picture.bytes), 0, axis)
    # Rounded to nine digits first: what float64 adds to a half is none of OpenCV's.
    return np.clip(np.floor(made.round(9) + 0.5), 0, 255) if picture.bytes and name != "nearest" else made


def _opencv(name: str, lines: Array, size: int, whole: bool) -> Array:
    """The first dimension resized, in float64, as the documentation of OpenCV's ``InterpolationFlags`` defines it.

    Args:
        whole: for bytes, which OpenCV weighs in steps of 2^-11.
    """
    count = len(lines)
    scale = count / size
    if name == "nearest":
        return np.asarray(lines[np.minimum(np.floor(np.arange(size) * scale).astype(int), count - 1)])
    if name == "area":
        # The integral of the lines, from which a mean over any stretch is the difference of two values.
        sums = np.concatenate([np.zeros_like(lines[:1]), np.cumsum(lines, 0)])
        ends = np.minimum(np.arange(size + 1) * scale, count)
        at = np.minimum(np.floor(ends).astype(int), count - 1)
        part = (ends - at).reshape(-1, *[1] * (lines.ndim - 1))
        integral = sums[at] + part * lines[at]
        return np.asarray(np.diff(integral, axis=0) / np.diff(ends).reshape(part[1:].shape))
    made = []
    for index in range(size):
        place = (index + 0.5) * scale - 0.5
        low = math.floor(place)
        reach = 1 if name == "linear" else 2
        near = range(low - reach + 1, low + reach + 1)
        weights = [_kernel(name, abs(place - n)) for n in near]
        if whole:
            weights = [round(w * 2048) / 2048 for w in weights]
        made.append(sum(lines[min(max(n, 0), count - 1)] * w for n, w in zip(near, weights, strict=True)))
    return np.stack(made)


def _kernel(name: str, x: float) -> float:
    """Weight of a pixel at a distance: the triangle, or Keys' cubic with a = -3/4."""
    if name == "linear":
        return max(0.0, 1.0 - x)
    a = -0.75
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def outside(frame: Frame | None, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the framed model gives where the original gives ``outputs``."""
    made = dict(outputs)
    for result in frame.results if frame is not None else ():
        if result.name in outputs:
            del made[result.name]
            made |= finished(result, np.asarray(outputs[result.name], np.float64))
    return made


def finished(result: Result, given: Array) -> dict[str, Array]:
    """An output of the original as the app wants it.

    Args:
        given: float64.
    """
    if result.activation == "softmax":
        powers = np.exp(given - given.max(result.axis, keepdims=True))
        given = powers / powers.sum(result.axis, keepdims=True)
    elif result.activation == "sigmoid":
        given = 1 / (1 + np.exp(-given))
    if result.take == "all":
        return {result.made[0]: given.astype(np.float32)}
    if result.take == "argmax":
        return {result.made[0]: np.argmax(given, result.axis).astype(result.index_type)}
    if result.take == "topk":
        order = np.argsort(-given, result.axis, kind="stable").take(range(result.top), result.axis)
        values = np.take_along_axis(given, order, result.axis).astype(np.float32)
        return dict(zip(result.made, (values, order.astype(result.index_type)), strict=True))
    last = given if result.model_layout == "nhwc" else np.moveaxis(given, 1, -1)
    unit = (last * np.array(result.deviation) + np.array(result.mean)) / result.scale
    levels = np.clip(np.floor(unit * 255 + 0.5), 0, 255).astype(np.uint8)
    if result.colour != result.model_colour:
        levels = np.repeat(levels, 3, -1) if result.model_colour == "gray" else levels[..., ::-1]
    return {result.made[0]: np.ascontiguousarray(levels if result.layout == "nhwc" else np.moveaxis(levels, -1, 1))}
