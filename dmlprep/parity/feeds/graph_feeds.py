"""Generate feeds (one array for each graph input) from a seed, to suit type and role; and check the user's feeds."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.graph.model import Model
from dmlprep.graph.model.bounds import beyond_bounds
from dmlprep.graph.model.pinned import pinned_values
from dmlprep.parity.feeds.constrained_inputs import batch_count, compared_with, region_extent, reshape_target
from dmlprep.parity.feeds.files import GivenFeed, unfit_feed
from dmlprep.parity.feeds.roles import index_limit, role
from dmlprep.parity.feeds.sizes import Input, caches, graph_inputs, is_signal, resolve_shapes
from dmlprep.portable.arrays import Array
from dmlprep.portable.bounds import MOST_FEEDS

Feed = dict[str, Array]


_BYTES_PER_ELEMENT = 16
"""Memory in bytes for each element while a seeded feed is generated: numbers are drawn in FP64, then converted."""


def static_sizes(model: Model) -> dict[str, int]:
    """Return the sizes of all fixed axes of a model's inputs, by ``input:axis``."""
    return {
        f"{one.name}:{axis}": dim
        for one in graph_inputs(model)
        for axis, dim in enumerate(one.dims or ())
        if isinstance(dim, int)
    }


def make_feeds(
    model: Model,
    sizes: Mapping[str, int] | None = None,
    count: int = 2,
    seed: int = 0,
    *,
    like: Model | None = None,
    rough: bool = False,
    values: Mapping[str, Array] | None = None,
) -> list[Feed]:
    """Return feeds for a model, generated from a seed to suit the type and role of each input.

    - Token ids are within the rows of the table that they index; token types are zero.
    - Masks are ones, with a padded tail in one row. Positions continue after the cache, and caches are small.
    - Images have unit variance and are smooth, with some noise. Sound has notes and silence.
    - A lone number that the graph compares with a constant is that constant.

    The same seed and shapes give the same arrays, in any order of inputs.

    Args:
        sizes: sizes for free dimensions by name (``batch``) or by input and axis (``x:0``); otherwise small defaults.
        count: number of feeds.
        seed: seed of the first feed; the next feeds have the next numbers.
        like: a prepared form of the model, in which more ranks and tighter limits of indices are known.
        rough: True to use noise alone for images at odd seeds. FP16 can be right on surfaces and wrong on textures. In
            FP32, noise shows how ill-conditioned untrained networks are, and not a fault of the device.
        values: arrays for inputs that are not generated, by name.

    Raises:
        UsageError: too many feeds are requested, or feeds that are too large.
        CheckNotRun: an input is not a tensor or has no known rank, or no values can be generated for its type.
    """
    if count > MOST_FEEDS:
        raise UsageError(f"{count} feeds are too many", fix=f"ask for at most {MOST_FEEDS}")
    inputs, fixed = graph_inputs(model), values or {}
    ranked = {one.name: one.dims for one in graph_inputs(like)} if like is not None else {}
    inputs = [replace(one, dims=ranked.get(one.name)) if one.dims is None else one for one in inputs]
    shapes = resolve_shapes(inputs, sizes or {})
    starting = resolve_shapes(inputs, {**_empty_caches(inputs), **(sizes or {})})
    for one in inputs:
        if wrong := beyond_bounds(shapes[one.name]):
            fix = "set smaller sizes for its free dimensions: --pin, --size, or parity.sizes in the recipe"
            raise UsageError(wrong, where=f"input {one.name}", fix=fix)
    _check_room(model, {name: shape for name, shape in shapes.items() if name not in fixed})
    limits = {one.name: _index_limit(model, like, one.name) for one in inputs}
    lone = {one.name: _compared(model, one) for one in inputs if math.prod(shapes[one.name]) == 1}

    def array_of(one: Input, seed: int) -> Array:
        if one.name in fixed:
            return fixed[one.name]
        if (compared := lone.get(one.name)) is not None:
            return np.full(shapes[one.name], compared, _numpy_type(one))
        with_cache = fixed[_BRANCH].all() if _BRANCH in fixed else seed % 2 == 0
        return _fill(one, shapes if with_cache else starting, inputs, limits[one.name], seed, rough=rough)

    return [{one.name: array_of(one, seed + number) for one in inputs} for number in range(count)]


_BRANCH = "use_cache_branch"
"""Name of an input of decoders that Optimum merged from two: True to read the cache. Even seeds set it to True."""


def _empty_caches(inputs: Sequence[Input]) -> dict[str, int]:
    """Return sizes by ``input:axis`` of empty caches, for the first run of a merged decoder; empty for other models."""
    past = {one.name: one.dims[2] for one in inputs if one.name.startswith("past") and one.dims and len(one.dims) == 4}
    others = {dim for one in inputs if one.name not in past for dim in one.dims or ()}
    merged = any(one.name == _BRANCH for one in inputs)
    return {f"{name}:2": 0 for name, dim in past.items() if merged and isinstance(dim, str) and dim not in others}


def _check_room(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that feeds of these shapes are within the model's memory limit, before they are generated.

    Raises:
        UsageError: DP703, they are too large.
    """
    needed = _BYTES_PER_ELEMENT * sum(math.prod(shape) for shape in shapes.values())
    if needed <= model.budget.most_bytes:
        return
    largest = max(shapes, key=lambda name: math.prod(shapes[name]))
    sizes = " x ".join(map(str, shapes[largest]))
    most = f"at most {model.budget.most_bytes >> 20:,} are allowed"
    what = f"synthetic inputs of {sizes} need {needed >> 20:,} MiB, {most}"
    fix = (
        "set smaller sizes for its free dimensions (--pin, --size, parity.sizes in the recipe), pass your own inputs "
        f"with --feeds, or raise the limit: dmlprep --limit made_bytes={needed} COMMAND"
    )
    raise UsageError(what, where=f"input {largest}", fix=fix, code="DP703")


def _compared(model: Model, one: Input) -> int | float | None:
    """Return the constant with which the graph compares an input that is a single number.

    ``None`` if there is no such constant, or the input's type cannot represent it.
    """
    if one.dtype is None or not (one.dtype.is_integer() or one.dtype.is_floating_point()):
        return None
    number, kind = compared_with(one.value, model.ir.functions), _numpy_type(one)
    fits = number is not None and (kind.kind == "f" or np.iinfo(kind).min <= number <= np.iinfo(kind).max)
    return number if fits else None


def _index_limit(model: Model, like: Model | None, name: str) -> int | None:
    """Return the smaller of both models' limits for indices in the input ``name``; ``None`` if there is no limit."""
    models = [model] if like is None else [model, like]
    limits = [index_limit(one, value) for one in models for value in one.ir.graph.inputs if value.name == name]
    return min((limit for limit in limits if limit is not None), default=None)


def _numpy_type(one: Input) -> np.dtype:
    if one.dtype is None:
        kind = type(one.value.type).__name__.removesuffix("Type").lower() if one.value.type is not None else "untyped"
        what = f"input {one.name!r} is not a tensor ({kind}): dmlprep cannot generate values for it"
        raise CheckNotRun(what, code="DP703", fix="make it a tensor input when exporting")
    if one.dtype == ir.DataType.STRING:
        return np.dtype(object)
    if one.dtype.name.startswith(("UNDEFINED", "FLOAT8", "COMPLEX")) or one.dtype.bitwidth < 8:
        what = f"input {one.name!r} has type {one.dtype.name}: dmlprep cannot generate values for it"
        raise CheckNotRun(what, code="DP703", fix="pass your own inputs with --feeds")
    return np.dtype(one.dtype.numpy())


def _fill(
    one: Input,
    shapes: Mapping[str, tuple[int, ...]],
    inputs: Sequence[Input],
    limit: int | None,
    seed: int,
    *,
    rough: bool,
) -> Array:
    kind = _numpy_type(one)
    if one.dims is None:
        what = f"input {one.name!r} has no shape and no rank"
        raise CheckNotRun(what, code="DP703", fix="pass your own inputs with --feeds")
    shape = shapes[one.name]
    rng = np.random.default_rng([seed, zlib.crc32(one.name.encode())])
    if kind.kind == "O":
        words = np.array(["the", "quick", "brown", "fox", "jumps"], dtype=object)
        return np.asarray(words[rng.integers(0, len(words), shape)], dtype=object).reshape(shape)
    if kind.kind in "iu":
        if (images := batch_count(one, shapes)) is not None:
            return rng.integers(0, images, shape).astype(kind)
        if (target := reshape_target(one, shape)) is not None:
            return target.astype(kind)
    elif len(shape) == 2 and shape[1] == 4 and (extent := region_extent(one, shapes)) is not None:
        starts, sizes = rng.uniform(0, 0.5, (shape[0], 2)), rng.uniform(0.1, 0.5, (shape[0], 2))
        return np.asarray(np.concatenate([starts, starts + sizes], 1) * np.tile(extent, 2), dtype=kind)
    match role(one, limit):
        case "mask":
            filled: Array = np.ones(shape) if any(map(caches, inputs)) else _mask(shape, seed)
        case "flag":
            filled = np.full(shape, seed % 2 == 0) if not shape or shape == (1,) else rng.random(shape) < 0.5
        case "positions":
            filled = _positions(shape, inputs, shapes, limit)
        case "types":
            filled = np.zeros(shape)
        case "ids":
            # Skip the first few rows, which are padding and other special tokens.
            top = min(limit, np.iinfo(kind).max) if limit is not None else 10
            filled = rng.integers(5 if top > 10 else 0, top, shape)
        case "number":
            # Not known to index anything: mostly a mask or a class, so 1 and a few 0.
            filled = rng.random(shape) < 0.8
        case "timestep":
            filled = np.full(shape, rng.integers(1, 999))
        case "count":
            filled = np.full(shape, min(3, limit - 1) if limit else 3)
        case "sizes":
            size = next((shapes[i.name][2:] for i in inputs if len(shapes[i.name]) == 4), (64, 64))
            filled = np.broadcast_to(size, shape) if shape and shape[-1] == 2 else np.full(shape, size[0])
        case "factor":
            filled = np.ones(shape)
        case "cache":
            filled = rng.standard_normal(shape) * 0.3
        case "image":
            filled = make_image(rng, shape, kind, smooth=not (rough and seed % 2))
        case _ if is_signal(one) and shape and max(shape) >= _SOUND:
            filled = _sound(rng, shape, quiet=bool(seed % 2))
        case _:
            # A lone number is mostly a factor or a threshold: positive, and neither 0 nor 1.
            filled = rng.uniform(0.25, 0.75, shape) if not shape else rng.standard_normal(shape)
    return np.asarray(filled).astype(kind).reshape(shape)


def _mask(shape: tuple[int, ...], seed: int) -> Array:
    """Return a mask of ones, with zeros (padding) at the end of the last row; a single row has them at odd seeds."""
    mask = np.ones(shape)
    if len(shape) >= 2 and shape[-1] >= 2 and (shape[0] > 1 or seed % 2):
        mask[-1, ..., -max(1, shape[-1] // 4) :] = 0
    return mask


def _positions(
    shape: tuple[int, ...], inputs: Sequence[Input], shapes: Mapping[str, tuple[int, ...]], limit: int | None
) -> Array:
    past = next((shapes[i.name][2] for i in inputs if "past" in i.name.lower() and len(shapes[i.name]) == 4), 0)
    row = np.arange(past, past + (shape[-1] if shape else 1))
    return np.broadcast_to(np.minimum(row, limit - 1) if limit else row, shape or (1,))


def make_image(rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype, *, smooth: bool) -> Array:
    """Return a generated picture of zero mean and unit variance; for integer types ``kind``, with values 0 to 255.

    The result is a floating-point array. ``smooth``: True for waves with some noise, False for noise alone. Values for
    int8 end at 127.
    """
    if 0 in shape:
        return np.zeros(shape)
    # In place: an 8K picture has 100 million numbers.
    exact = np.dtype(np.float64 if math.prod(shape) <= _LARGE else np.float32)
    steps = [np.linspace(0, 1, n) for n in shape]
    picture: Array = np.zeros(shape, exact)
    for _ in range(4 if smooth else 0):
        phase: Array = np.array(rng.uniform(0, 2 * np.pi), exact)
        for axis, line in enumerate(steps):
            wave = rng.uniform(1, 4) * 2 * np.pi * line
            phase = phase + wave.astype(exact).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        picture += np.sin(phase, out=phase)
        del phase
    picture *= 0.5
    for part in _parts(picture):
        part += rng.standard_normal(part.shape) * 0.5
    mean, deviation = _moments(picture)
    picture -= mean
    picture /= deviation or 1.0
    if kind.kind in "iu":
        picture *= 50
        picture += 128
        np.clip(np.rint(picture, out=picture), 0, 127 if kind == np.int8 else 255, out=picture)
    return picture


_LARGE = 1 << 23
"""Number of elements above which a picture is generated in float32 instead of float64."""


def _parts(whole: Array) -> Iterator[Array]:
    """Yield views on a contiguous array, one part of ``_LARGE`` elements after the other."""
    flat = whole.reshape(-1)
    for start in range(0, flat.size, _LARGE):
        yield flat[start : start + _LARGE]


def _moments(picture: Array) -> tuple[float, float]:
    """Return mean and standard deviation of a picture."""
    if picture.size <= _LARGE:
        return float(picture.mean()), float(picture.std())
    mean = float(picture.mean())
    squares = (float(np.square(part.astype(np.float64) - mean).sum()) for part in _parts(picture))
    return mean, math.sqrt(sum(squares) / picture.size)


_SOUND = 256
"""Fewest samples of a generated signal that has notes; a shorter one is noise."""


def _sound(rng: np.random.Generator, shape: tuple[int, ...], *, quiet: bool) -> Array:
    """Return a generated sound with loud and quiet parts: notes that fade, faint noise, and silence at the end.

    A spectrum of noise alone has no small values. The logarithm of small values is where FP16 breaks a model of sound.
    ``quiet``: True for a tenth of the volume.
    """
    length = max(shape)
    time = np.arange(length)
    notes, wave = 4, np.zeros(length)
    for note in range(notes):
        since = time - length * (note + 0.1) / (notes + 1)
        fading = np.where(since >= 0, np.exp(-np.maximum(since, 0) * 3 * (notes + 1) / length), 0.0)
        pitch, loud = rng.uniform(0.004, 0.05), rng.uniform(0.2, 1.0)
        tones = [np.sin(2 * np.pi * (pitch * k * time + rng.random())) / k**1.5 for k in range(1, 5)]
        wave += loud * fading * np.sum(tones, axis=0)
    wave += 1e-3 * rng.standard_normal(length)
    wave[-length // 8 :] = 0
    wave *= (0.05 if quiet else 0.5) / np.max(np.abs(wave))
    lying = [length if size == length and axis == shape.index(length) else 1 for axis, size in enumerate(shape)]
    return np.broadcast_to(wave.reshape(lying), shape)


def fit_feeds(
    model: Model, feeds: Iterable[Mapping[str, Array]], where: str = "", optional: Collection[str] = ()
) -> list[Feed]:
    """Check the user's feeds against a model, and return them with their names completed.

    Arrays named ``#0``, ``#1`` (from ``input_0.pb``) get the name of the input with that index.

    Args:
        where: name of the feeds in errors, for feeds without a file.
        optional: names of inputs that a feed may lack.

    Raises:
        InputError: a name, type or shape does not fit, or an input is missing; the text names it, and what the model
            has.
    """
    inputs = {one.name: one for one in graph_inputs(model)}
    order = list(inputs)
    fitted: list[Feed] = []
    for number, feed in enumerate(feeds, 1):
        place = _place(feed, where or f"feed {number}")
        named: Feed = {}
        for key, array in feed.items():
            if key.startswith("#") and key[1:].isdigit() and key not in inputs:
                if int(key[1:]) >= len(order):
                    raise unfit_feed(f"input_{key[1:]}.pb has no input: the model has {len(order)} inputs", place)
                key = order[int(key[1:])]
            named[key] = np.asarray(array)
        _check_names(named, inputs, place, optional)
        sizes: dict[str, tuple[int, str]] = {}
        for name, array in named.items():
            _check_array(inputs[name], array, sizes, place)
        fitted.append(GivenFeed(named, feed.source) if isinstance(feed, GivenFeed) else named)
    return fitted


def fit_shapes(model: Model, feeds: Iterable[Feed], where: str) -> None:
    """Check names and shapes of feeds against a model, but not element types of numbers, which may differ.

    A feed may have inputs that the model lacks because their values were pinned.

    Raises:
        InputError: a name or shape does not fit. It names the file of a user's feed; for other feeds, ``where``.
    """
    gone = set(pinned_values(model.ir)) - {v.name for v in model.ir.graph.inputs}
    for feed in feeds:
        adapted = {name: array for name, array in feed.items() if name not in gone}
        for value in model.ir.graph.inputs:
            name = value.name or ""
            if name in adapted and value.dtype is not None and value.dtype != ir.DataType.STRING:
                # A view of the right type and shape: no data is copied.
                adapted[name] = np.broadcast_to(np.zeros((), value.dtype.numpy()), adapted[name].shape)
        fit_feeds(model, [adapted], _place(feed, where))


def _place(feed: Mapping[str, Array], where: str) -> str:
    return feed.source if isinstance(feed, GivenFeed) else where


def _check_names(feed: Feed, inputs: Mapping[str, Input], place: str, optional: Collection[str]) -> None:
    unknown = sorted(set(feed) - set(inputs))
    missing = sorted(set(inputs) - set(feed) - set(optional))
    if unknown or missing:
        problems = [f"no input is named {unknown[0]!r}"] if unknown else []
        problems += [f"input {missing[0]!r} is missing"] if missing else []
        raise unfit_feed(" and ".join(problems), place, f"the model's inputs: {', '.join(inputs) or 'none'}")


def _check_array(one: Input, array: Array, sizes: dict[str, tuple[int, str]], place: str) -> None:
    own, name, shape = array.dtype.name, one.name, list(array.shape)
    if one.dtype == ir.DataType.STRING:
        fits, wanted = array.dtype.kind in "OUST", "string"
    else:
        wanted = np.dtype(one.dtype.numpy()).name if one.dtype is not None else own
        fits = own == wanted
    if not fits:
        raise unfit_feed(f"input {name!r} needs {wanted}, but the feed is {own}", place, f"save it as {wanted}")
    if one.dims is None:
        return
    if len(one.dims) != array.ndim:
        declared = [dim if dim is not None else "?" for dim in one.dims]
        what = f"input {name!r} has {len(one.dims)} dimensions {declared}, the feed has shape {shape}"
        raise unfit_feed(what, place)
    for axis, (dim, size) in enumerate(zip(one.dims, shape, strict=True)):
        if isinstance(dim, int) and dim != size:
            what = f"axis {axis} of input {name!r} is {dim}, the feed has shape {shape}"
            raise unfit_feed(what, place, "pin that size, or pass feeds of the pinned size")
        if isinstance(dim, str):
            first, other = sizes.setdefault(dim, (size, name))
            if first != size:
                raise unfit_feed(f"dimension {dim!r} is {first} in {other!r} and {size} in {name!r}", place)
