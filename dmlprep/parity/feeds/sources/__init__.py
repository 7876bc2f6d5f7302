"""Make feeds from the user's own pictures, sound or text; the suffix of a file shows its kind."""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dmlprep.core.errors import InputError, OutputError, UsageError
from dmlprep.core.files import FileSet, Unfit, check_path, check_plain, staging_folder, unreadable
from dmlprep.core.files.links import check_inside, is_plain_file
from dmlprep.core.files.writing import plain_errors
from dmlprep.graph.model import Model
from dmlprep.graph.model.budget import Budget
from dmlprep.parity.feeds.constrained_inputs import compared_with
from dmlprep.parity.feeds.graph_feeds import Feed, fit_feeds, make_feeds
from dmlprep.parity.feeds.roles import index_limit, role
from dmlprep.parity.feeds.run_feeds import check_sizes
from dmlprep.parity.feeds.sizes import Input, batch_axis, graph_inputs, is_signal, known_shape
from dmlprep.parity.feeds.sources.pictures import Pictures, is_picture, pictures
from dmlprep.parity.feeds.sources.sound import is_sound, sound
from dmlprep.parity.feeds.sources.text import is_text, lines, text
from dmlprep.portable.arrays import Array

__all__ = ["FeedsRequest", "Pictures", "WrittenFeeds", "feeds_from"]

Kind = Literal["pictures", "sound", "text"]

_SUFFIXES: dict[Kind, frozenset[str]] = {
    "pictures": frozenset((".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm")),
    "sound": frozenset((".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif")),
    "text": frozenset((".txt", ".md")),
}
_RATE = re.compile(r"sr|(sample|sampling)_?rate|rate", re.IGNORECASE)
"""Names of inputs that mean the sample rate."""


@dataclass(frozen=True)
class FeedsRequest:
    """A request for feeds from files.

    Attributes:
        model: path of the model to feed; its inputs determine layout, size and type.
        sources: files, and folders with all files below them; the model may accept only one of their kinds, the others
            are ignored.
        out: folder for the feeds, one ``.npz`` each.
        count: largest number of feeds; their files (for text, lines) are chosen evenly from all.
        input: name of the input for the files; empty: the only one that fits.
        sizes: sizes of free dimensions, by name or by ``input:axis``.
        values: numbers or arrays for other inputs, by name; inputs without one are seeded.
        pictures: the conversion of pictures to numbers.
        rate: sample rate of the model's input in Hz; ``None``: the constant with which the model compares its rate, or
            the rate of the files.
        tokenizer: path of the ``tokenizer.json``; ``None``: the one next to the model or next to the sources.
        force: True to replace feeds in ``out``.
    """

    model: Path
    sources: Sequence[Path]
    out: Path
    count: int = 4
    input: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)
    pictures: Pictures = field(default_factory=Pictures)
    rate: int | None = None
    tokenizer: Path | None = None
    force: bool = False


@dataclass(frozen=True)
class WrittenFeeds:
    """Feeds that were written.

    Attributes:
        kind: kind of the sources.
        files: paths of the feeds.
        shapes: shapes of the first feed, by input.
        seeded: names of inputs with values from a seed.
    """

    kind: Kind
    files: list[Path]
    shapes: dict[str, tuple[int, ...]]
    seeded: list[str]


def feeds_from(request: FeedsRequest) -> WrittenFeeds:
    """Convert the files of a request to feeds, complete them with other inputs, and write them.

    With ``force``, feeds of an earlier run in the folder are removed.

    Raises:
        InputError: the model, a file or the tokenizer cannot be read, or a value does not fit the model.
        UsageError: the model accepts several kinds of the files, no input or several inputs fit them, the layout is
            unknown, there is no tokenizer, or a package is missing.
        OutputError: the folder cannot be written, or contains feeds and ``force`` is False.
        CheckNotRun: no value can be generated for another input.
        ModelRefused: as ``Model.open``; or DP014, the model's input is larger than the memory limit.
        ToolFailed: as ``Model.open``.
    """
    model = Model.open(request.model)
    inputs = graph_inputs(model)
    check_sizes(model, request.sizes)
    if wrong := sorted(set(request.values) - {one.name for one in inputs}):
        raise InputError(f"no input is named {wrong[0]!r}", where="--set", fix=f"it has: {_names_of(inputs)}")
    kind, one, files = _chosen(request, model, inputs)
    for file in files:
        try:
            check_plain(file)
        except Unfit as error:
            raise InputError(str(error), where=str(file), fix=error.fix) from error
        except OSError as error:
            raise unreadable(error, file) from error
    items: list[Any] = [line for file in files for line in lines(file)] if kind == "text" else list(files)
    if not items:
        raise InputError("contains no text", where=str(files[0]))
    shape = known_shape(inputs, one, request.sizes)
    batched = len(shape) > (3 if kind == "pictures" else 1)
    model.budget.require([size or 1 for size in shape], 16, f"input {one.name!r}", str(request.model))
    groups = _groups(len(items), request.count, (shape[0] or 1) if batched else 1)
    paths = [request.out / f"{_name(number, len(groups), items[group[0]])}.npz" for number, group in enumerate(groups)]
    before = _there(request)
    check_path(paths[-1])
    real = [_real(request, model, one, shape, kind, [items[i] for i in group]) for group in groups]
    whole = [_others(request, model, inputs, kind, feed, number) for number, feed in enumerate(real)]
    fit_feeds(model, whole, "the feeds that were made")
    with staging_folder(request.out) as staging:
        new = {path.name: staging / path.name for path in paths}
        for path, feed in zip(new.values(), whole, strict=True):
            with plain_errors(request.out / path.name):
                path.write_bytes(_npz(feed))
        head, *others = new
        gone = (path.name for path in before - set(paths))
        FileSet(request.out, head, (*others, *gone)).exchange(new, force=request.force)
    seeded = [i.name for i in inputs if i.name not in real[0] and i.name not in request.values]
    return WrittenFeeds(kind, paths, {name: array.shape for name, array in whole[0].items()}, seeded)


def _names_of(inputs: Sequence[Input]) -> str:
    return ", ".join(f"{one.name} {[d if d is not None else '?' for d in one.dims or ()]}" for one in inputs) or "none"


def _chosen(request: FeedsRequest, model: Model, inputs: Sequence[Input]) -> tuple[Kind, Input, list[Path]]:
    """Return the kind of the sources that fits the model, the input for the files, and the files of that kind.

    Raises:
        UsageError: no input fits, the model accepts several kinds of the sources, or several inputs fit.
        InputError: a source cannot be read, or no input has the requested name.
    """
    by_kind = _sources(request.sources)
    takes = {kind: _takers(request, model, inputs, kind) for kind in by_kind}
    fitting = [kind for kind in by_kind if takes[kind]]
    there = " and ".join(by_kind)
    if not fitting:
        what = f"{request.model} has no input for {there}" + (f" ({request.input!r})" if request.input else "")
        where = "--input" if request.input else str(request.sources[0])
        raise UsageError(what, where=where, fix=f"choose the input with --input; it has: {_names_of(inputs)}")
    if len(fitting) > 1:
        what, where = f"the sources are {there}, and the model accepts either", str(request.sources[0])
        raise UsageError(what, where=where, fix="pass files of one kind")
    kind = fitting[0]
    if len(takes[kind]) > 1:
        what = f"several inputs accept {kind}: {', '.join(one.name for one in takes[kind])}"
        raise UsageError(what, where=str(request.model), fix="choose with --input")
    return kind, takes[kind][0], by_kind[kind]


def _takers(request: FeedsRequest, model: Model, inputs: Sequence[Input], kind: Kind) -> list[Input]:
    """Return the inputs that accept a kind of file; if several might, but only one surely does, only that one.

    Sure are a signal and ``input_ids``. If the request names an input, only that one counts.

    Raises:
        InputError: no input has the requested name.
    """
    if request.input:
        named = [one for one in inputs if one.name == request.input]
        if not named:
            raise InputError(
                f"no input is named {request.input!r}", where="--input", fix=f"it has: {_names_of(inputs)}"
            )
        by_hand = kind == "pictures" and bool(request.pictures.layout)
        return [one for one in named if by_hand or _may_take(model, one, kind)]
    takers = [one for one in inputs if _may_take(model, one, kind)]
    if not takers and kind == "pictures" and request.pictures.layout:
        takers = [one for one in inputs if len(one.dims or ()) == len(request.pictures.layout)]
    sure = [one for one in takers if is_signal(one) or one.name == "input_ids"]
    return sure if len(takers) > 1 and len(sure) == 1 else takers


def _may_take(model: Model, one: Input, kind: Kind) -> bool:
    if kind == "text":
        return is_text(one, index_limit(model, one.value))
    return is_picture(one) if kind == "pictures" else is_sound(one)


def _sources(sources: Sequence[Path]) -> dict[Kind, list[Path]]:
    """Return the files of the sources by kind; those of a folder are sorted, and files of unknown kinds are ignored.

    Raises:
        InputError: a source does not exist, or has no file of a known kind.
    """
    by_kind: dict[Kind, list[Path]] = {}
    for source in sources:
        if not source.exists():
            raise InputError("no such file or folder", where=str(source))
        try:
            files = sorted(f for f in source.rglob("*") if f.is_file()) if source.is_dir() else [source]
        except OSError as error:
            raise unreadable(error, Path(error.filename or source)) from error
        kinds = [(kind, file) for file in files for kind, known in _SUFFIXES.items() if file.suffix.lower() in known]
        if not kinds:
            what = "contains no pictures, audio or text" if source.is_dir() else "unsupported kind of file"
            forms = "; ".join(f"{kind} ({' '.join(sorted(known))})" for kind, known in _SUFFIXES.items())
            raise InputError(what, where=str(source), fix=f"pass {forms}")
        if source.is_dir():
            check_inside((file for _, file in kinds), source)
        for kind, file in kinds:
            by_kind.setdefault(kind, []).append(file)
    return by_kind


def _groups(total: int, count: int, batch: int) -> list[list[int]]:
    """Return the indices of the items for each feed: evenly from all ``total`` items, repeated if they are too few.

    ``batch`` is the number of items in a feed.
    """
    wanted = min(count, -(-total // batch)) * batch
    order = [i % total if total <= wanted else i * total // wanted for i in range(wanted)]
    return [order[start : start + batch] for start in range(0, wanted, batch)]


def _name(number: int, total: int, item: Path | str) -> str:
    stem = re.sub(r"[^\w-]+", "_", item.stem if isinstance(item, Path) else item)[:40].strip("_")
    return f"{number:0{len(str(total))}}-{stem}" if stem else str(number)


def _there(request: FeedsRequest) -> set[Path]:
    """Return the ``.npz`` files that an earlier run wrote into the output folder, to be removed.

    Raises:
        OutputError: the folder contains feeds and ``force`` is False, or it is a file.
    """
    existing = sorted(request.out.glob("*.npz")) if request.out.is_dir() else []
    if existing and not request.force:
        fix = "pass --force to replace them, or choose another folder"
        raise OutputError(f"the folder already contains feeds ({existing[0].name})", where=str(request.out), fix=fix)
    if request.out.exists() and not request.out.is_dir():
        raise OutputError("a file of this name exists", where=str(request.out), fix="pass a folder")
    return {path for path in existing if is_plain_file(path) and re.fullmatch(r"\d+(-[\w-]+)?", path.stem)}


def _real(
    request: FeedsRequest, model: Model, one: Input, shape: Sequence[int | None], kind: Kind, items: Sequence[Any]
) -> Feed:
    """Convert the items of one feed (files, or lines of text) to arrays by input name."""
    # A large model does not make large pictures acceptable; an input of fixed size that fits its budget does.
    most = max(Budget().most_bytes, 0 if None in shape else 16 * math.prod(size or 1 for size in shape))
    if kind == "pictures":
        return {one.name: pictures(one, shape, items, request.pictures, most)}
    inputs = graph_inputs(model)
    if kind == "text":
        return text(one, inputs, shape, items, _tokenizer(request), most)
    takes = [i for i in inputs if _RATE.fullmatch(i.name) and i is not one]
    compared = next((compared_with(i.value, model.ir.functions) for i in takes), None)
    samples, rate = sound(one, shape, items, request.rate or (int(compared) if compared else None), most)
    return {one.name: samples, **{i.name: np.full([1] * len(i.dims or ()), rate, i.numpy_type) for i in takes}}


def _tokenizer(request: FeedsRequest) -> Path:
    folders = [request.model.parent, *(s if s.is_dir() else s.parent for s in request.sources)]
    file = request.tokenizer or next((f for d in folders if (f := d / "tokenizer.json").is_file()), None)
    if file is None:
        what = "no tokenizer.json next to the model or the text"
        raise UsageError(what, where="--tokenizer", fix="pass --tokenizer FILE")
    return file


def _others(request: FeedsRequest, model: Model, inputs: Sequence[Input], kind: Kind, feed: Feed, number: int) -> Feed:
    """Return a feed, completed with the user's values, and with seeded values for all further inputs.

    Their sizes agree with the feed. ``number`` is the number of the feed, which is the seed.
    """
    batch = next(iter(feed.values())).shape[:1]
    free = [i for i in inputs if len(i.dims or ()) > 1 and (i.dims or ())[batch_axis(i)] is None]
    alike = {f"{i.name}:{batch_axis(i)}": batch[0] for i in free if batch}
    own = {f"{n}:{axis}": size for n, a in feed.items() for axis, size in enumerate(a.shape)}
    sizes = {**alike, **request.sizes, **own}
    if kind == "text":
        # An empty cache: the text is all that the model has read so far.
        caches = (i for i in inputs if i.name not in feed and role(i, None) == "cache" and len(i.dims or ()) == 4)
        sizes.update({f"{i.name}:2": 0 for i in caches if not isinstance((i.dims or ())[2], int)})
    whole = make_feeds(model, sizes, 1, seed=number)[0]
    for name, value in request.values.items():
        whole[name] = _set(name, value, whole[name])
    return {**whole, **{name: array for name, array in feed.items() if name not in request.values}}


def _set(name: str, value: Array, like: Array) -> Array:
    array = np.asarray(value).astype(like.dtype)
    if array.ndim == like.ndim:
        return array
    try:
        return np.broadcast_to(array, like.shape).copy()
    except ValueError:
        what = f"the value has shape {list(array.shape)}, the input {list(like.shape)}"
        raise InputError(what, where=f"--set {name}") from None


def _npz(feed: Feed) -> bytes:
    """Return the content of a ``.npz`` file with a feed, as ``numpy.savez`` writes it, but for any input names."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, array in feed.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
    return written.getvalue()
