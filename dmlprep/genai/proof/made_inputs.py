"""Generate inputs for one model of a folder, with sizes and values that suit its section in the config.

The sizes come from the config and the processors' files in the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlprep.core.files import Unfit, decode_text, parse_json, read_given
from dmlprep.genai.config import whole
from dmlprep.genai.folder import GenaiFolder, leads_out
from dmlprep.genai.names import named
from dmlprep.graph.model import Model
from dmlprep.metrics import holds_fp16
from dmlprep.parity import Feed, make_feeds
from dmlprep.parity.feeds.sizes import Input, graph_inputs
from dmlprep.portable.arrays import Array

_RATE = 16_000
"""Sample rate of onnxruntime-genai's sound processors in Hz."""

_PHI = 336
"""Height and width in pixels of a crop of Phi-3-vision; its processor's file lacks them (CLIP is ViT-L/14-336)."""

_ONE = re.compile(r"batch|^(n|b|bs)$|num_(image|audio|clip|video)s?$")
_CROPS = 2
"""Default number of crops of a picture: the whole picture, and one part of it."""


@dataclass(frozen=True)
class _Facts:
    """Sizes of pictures and sound from a folder's files; ``None`` if the files have none; ``merge`` is then 2.

    Attributes:
        height, width: size of a picture at the model's input, in pixels.
        crop: height and width of a part of a picture, in pixels.
        mels: number of bands of a spectrum.
        frames: number of frames of a spectrum.
        merge: number of patches that are merged into one, in each direction.
    """

    height: int | None
    width: int | None
    crop: int | None
    mels: int | None
    frames: int | None
    merge: int


def made_feeds(
    folder: GenaiFolder,
    section: str,
    model: Model,
    like: Model | None = None,
    count: int = 2,
    sizes: Mapping[str, int] | None = None,
) -> list[Feed]:
    """Return ``count`` seeded feeds for one model of a folder, with batch 1.

    Args:
        section: its section in the config (``encoder``, ``vision.pipeline.patch_embed``).
        like: the prepared model, whose fixed sizes and limits apply too; ``None``: there is none.
        sizes: sizes by ``input:axis`` that override those from the folder's files.

    Raises:
        CheckNotRun: no values can be generated for an input.
        UsageError: they would be too large.
    """
    inputs, facts = graph_inputs(model), _facts(folder)
    grid = named(folder.config, "vision", "inputs", "image_grid_thw")
    pixels = named(folder.config, "vision", "inputs", "pixel_values")
    patched = any(one.name == grid for one in inputs)
    wanted: dict[str, int] = dict(sizes or {})
    known: set[str] = {
        str(dim) for one in inputs for axis, dim in enumerate(one.dims or ()) if f"{one.name}:{axis}" in wanted
    }
    for one in inputs:
        for axis, dim in enumerate(one.dims or ()):
            if isinstance(dim, int) or f"{one.name}:{axis}" in wanted or dim in known:
                continue
            patches = patched and one.name == pixels and axis == len(one.dims or ()) - 2
            size = 4 * facts.merge**2 if patches else _size(one, axis, dim, facts)
            if size is not None:
                wanted[f"{one.name}:{axis}"] = size
                known |= {dim} if isinstance(dim, str) else set()
    feeds = make_feeds(model, wanted, count, like=like, rough=like is not None and holds_fp16(like))
    for feed in feeds:
        if patched and feed[grid].shape[-1:] == (3,):
            feed[grid] = _every(feed[grid], [1, 2 * facts.merge, 2 * facts.merge])
        name = named(folder.config, "vision", "inputs", "image_sizes")
        if name in feed and pixels in feed and feed[name].shape[-1:] == (2,) and feed[pixels].ndim >= 2:
            feed[name] = _every(feed[name], feed[pixels].shape[-2:])
    return feeds


def _every(array: Array, row: object) -> Array:
    return np.broadcast_to(np.asarray(row, array.dtype), array.shape).copy()


def _size(one: Input, axis: int, dim: str | None, facts: _Facts) -> int | None:
    """Return a size for a free dimension of an input, guessed from names and ``facts``; ``None`` if any size works."""
    name, dims = (dim or "").lower(), one.dims or ()
    pictures = len(dims) >= 4 and "mask" not in one.name
    if "crop" in name or "tile" in name:
        return _CROPS
    if _ONE.search(name) or (axis == 0 and not name):
        return 1
    if "mel" in name:
        return facts.mels
    if "frame" in name or (not name and axis == len(dims) - 1 and "audio" in one.name):
        return facts.frames
    if pictures and ("height" in name or "width" in name or (not name and axis >= len(dims) - 2)):
        if len(dims) == 5:
            return facts.crop or _PHI
        return facts.height if "height" in name or (not name and axis == len(dims) - 2) else facts.width
    return None


def _facts(folder: GenaiFolder) -> _Facts:
    config = folder.config
    pictures = _document(folder, config.text("model.vision.config_filename") or "processor_config.json")
    sound = _document(folder, config.text("model.speech.config_filename") or "audio_processor_config.json")
    pairs = [(_positive(table.get("height")), _positive(table.get("width"))) for table in _tables(pictures)]
    height, width = next((pair for pair in reversed(pairs) if all(pair)), (None, None))  # the last step's
    chunk, hop = _first(sound, "chunk_size"), _first(sound, "hop_length")
    return _Facts(
        height,
        width,
        _first(pictures, "dyhd_base_resolution"),
        _first(sound, "n_mel") or _positive(config.number("model.num_mels")),
        chunk * _RATE // hop if chunk and hop else None,
        _positive(config.number("model.vision.spatial_merge_size")) or 2,
    )


def _document(folder: GenaiFolder, name: str) -> object:
    """Return the content of a processor's JSON file in the folder; ``None`` if it is missing or invalid."""
    if leads_out(name):
        return None
    try:
        return parse_json(decode_text(read_given(folder.path / name)), Any, lenient=True)
    except (OSError, Unfit):
        return None


def _tables(document: object) -> Iterator[Mapping[str, object]]:
    """Yield every object of a JSON document, at any depth, in the order of the document."""
    stack = [document]
    while stack:
        at = stack.pop()
        if isinstance(at, Mapping):
            yield at
            stack += reversed(list(at.values()))
        elif isinstance(at, list):
            stack += reversed(at)


def _first(document: object, key: str) -> int | None:
    return next((number for table in _tables(document) if (number := _positive(table.get(key)))), None)


def _positive(value: object) -> int | None:
    number = whole(value)
    return number if number is not None and 0 < number < 1 << 16 else None
