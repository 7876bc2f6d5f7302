"""The denote step writes denotations: standard names for the meaning of dimensions, such as ``DATA_BATCH``.

A session can then fix the size of a free dimension by its meaning instead of by its name.

Standard denotations: https://github.com/onnx/onnx/blob/main/docs/DimensionDenotation.md. Any other text is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import onnx_ir as ir

from dmlprep.core.errors import UsageError
from dmlprep.graph.analysis.polynomial import ANONYMOUS
from dmlprep.graph.model import Model
from dmlprep.graph.model.dims import copy_shape
from dmlprep.passes.base import Context, Fact, Options, Pass
from dmlprep.passes.pin.sizes import ModelDims, input_dims
from dmlprep.record.steps import FreeDimension

BATCH, CHANNEL, TIME, FEATURE = "DATA_BATCH", "DATA_CHANNEL", "DATA_TIME", "DATA_FEATURE"

STANDARD = (BATCH, CHANNEL, TIME, FEATURE, "FILTER_IN_CHANNEL", "FILTER_OUT_CHANNEL", "FILTER_SPATIAL")
"""The denotations that ONNX defines. DATA_FEATURE means a spatial dimension of an image, or a hidden size."""

_WORDS = {
    BATCH: "batch batches batchsize bs n b",
    CHANNEL: "channel channels c ch rgb",
    TIME: "seq sequence seqlen time times frame frames step steps token tokens past length len t audio samples kv "
    "cache context",
    FEATURE: "height width depth h w d rows cols columns feature features hidden embed embedding dim size spatial mel "
    "mels bins",
}
_BY_WORD = {word: denotation for denotation, words in _WORDS.items() for word in words.split()}
_CHANNELS = (1, 3, 4)
_IMAGE_RANKS = (4, 5)  # [N, C, H, W] and [N, C, D, H, W]
_LONGEST = 128


class DenoteOptions(Options, frozen=True, kw_only=True):
    """Options of the step ``denote``.

    Attributes:
        dims: map from a dimension's name (``batch``), or an input or output and axis (``pixel_values:0``), to its
            denotation.
        rules: whether other dimensions get denotations by rules, from their names and layouts.
    """

    dims: dict[str, str] = msgspec.field(default_factory=dict)
    rules: bool = True


class DenotePass(Pass[DenoteOptions]):
    """Write denotations on the dimensions of inputs and outputs, and give every free input dimension a name."""

    name = "denote"
    summary = "write the meaning of each dimension (DATA_BATCH, DATA_CHANNEL ...), name free dimensions without a name"
    options_type = DenoteOptions
    gives: frozenset[Fact] = frozenset({"denoted"})  # type: ignore[misc]

    def run(self, model: Model, context: Context) -> bool:
        """Write denotations into ``model`` in place, and return whether it changed.

        Raises:
            UsageError: a key matches no dimension (DP203), or a denotation is empty, longer than 128 characters or not
                printable.
        """
        graph = model.ir.graph
        ends = [*_inputs(graph), *graph.outputs]
        before = _state(ends)
        _name_free(ends, graph)
        self._by_hand(graph, ends)
        if self.options.rules:
            for value in _inputs(graph):
                _by_rule(value)
            _follow_names(graph)
        _report(graph, context)
        return before != _state(ends)

    def _by_hand(self, graph: ir.Graph, ends: list[ir.Value]) -> None:
        # The more specific key wins: apply names first, places after.
        for key, denotation in sorted(self.options.dims.items(), key=lambda item: _place(item[0], ends) is not None):
            if not denotation.isprintable() or not 0 < len(denotation) <= _LONGEST:
                fix = f"use a word of at most {_LONGEST} characters, such as {', '.join(STANDARD[:4])}"
                raise UsageError(f"{denotation!r} is not a denotation", where=f"denote {key}", fix=fix)
            place = _place(key, ends)
            places = [place] if place is not None else [(v, a) for v, a, name in _dims(ends) if name == key]
            if not places:
                raise ModelDims(input_dims(graph), graph).unknown(key)
            for value, axis in places:
                _set(value, axis, denotation)


def _inputs(graph: ir.Graph) -> list[ir.Value]:
    return [v for v in graph.inputs if v.name not in graph.initializers]


def _dims(values: list[ir.Value]) -> Iterator[tuple[ir.Value, int, str]]:
    """Yield every dimension of the values: value, axis, and the dimension's name (empty for a fixed size)."""
    for value in values:
        for axis, dim in enumerate(value.shape or ()):
            yield value, axis, "" if isinstance(dim, int) else (dim.value or "")


def _state(values: list[ir.Value]) -> list[object]:
    """Return the shapes, dimension names and denotations of the values, to compare them before and after."""
    shapes = [v.shape for v in values if v.shape is not None]
    names = [[d if isinstance(d, int) else d.value for d in shape] for shape in shapes]
    return [[v.shape for v in values], names, [[s.get_denotation(i) for i in range(len(s))] for s in shapes]]


def _place(key: str, values: list[ir.Value]) -> tuple[ir.Value, int] | None:
    name, colon, axis = key.rpartition(":")
    if not colon or not re.fullmatch(r"-?\d+", axis):
        return None
    for value in values:
        rank = len(value.shape) if value.shape is not None else 0
        if value.name == name and -rank <= int(axis) < rank:
            return value, int(axis) % rank
    return None


def _set(value: ir.Value, axis: int, denotation: str) -> None:
    if value.shape is not None and value.shape.get_denotation(axis) != denotation:
        shape = copy_shape(value.shape)
        shape.set_denotation(axis, denotation)
        value.shape = shape


def _name_free(ends: list[ir.Value], graph: ir.Graph) -> None:
    """Give each free input dimension without a usable name (-1, "None") a new name, in place.

    ONNX Runtime can fix a dimension by name only if it has one. ``ends``: the inputs and outputs.
    """
    names = {name for _, _, name in _dims(ends)}
    for value in _inputs(graph):
        if value.shape is None:
            continue
        dims: list[int | str | None] = []
        for axis, dim in enumerate(value.shape):
            text = dim if isinstance(dim, int) else (dim.value or "")
            if (isinstance(text, int) and text < 0) or text in ANONYMOUS:
                text = f"{value.name}_dim_{axis}"
                while text in names:
                    text += "_"
                names.add(text)
            dims.append(text)
        if dims != [d if isinstance(d, int) else (d.value or "") for d in value.shape]:
            value.shape = ir.Shape(dims, [value.shape.get_denotation(i) for i in range(len(dims))])


def _by_name(name: str) -> str | None:
    """The denotation that a dimension's name suggests; ``None`` if no word of it is known.

    The first known word of a name such as ``sequence_length`` or ``batchSize`` decides.
    """
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return next((_BY_WORD[w.lower()] for w in words if w.lower() in _BY_WORD), None)


def _by_rule(value: ir.Value) -> None:
    """Give dimensions without a denotation one, in place: by the dimension's name, or else by the value's layout."""
    shape = value.shape
    if shape is None:
        return
    layout = _layout(value)
    for axis, dim in enumerate(shape):
        if shape.get_denotation(axis):
            continue
        name = "" if isinstance(dim, int) else dim.value or ""
        denotation = (None if name.startswith(f"{value.name}_dim_") else _by_name(name)) or layout[axis]
        if denotation is not None:
            _set(value, axis, denotation)


def _layout(value: ir.Value) -> list[str | None]:
    """Guess the denotation of each axis from rank and type; ``None`` for axes without a guess.

    Images are [N, C, H, W] or [N, H, W, C], tokens are [N, T]. From rank 2 on, the first axis is the batch.
    """
    assert value.shape is not None
    dims = [d if isinstance(d, int) else None for d in value.shape]
    rank = len(dims)
    floating = value.dtype is not None and value.dtype.is_floating_point()
    if rank in _IMAGE_RANKS and (floating or value.dtype == ir.DataType.UINT8):
        if dims[1] in _CHANNELS:
            return [BATCH, CHANNEL, *[FEATURE] * (rank - 2)]
        if dims[-1] in _CHANNELS:
            return [BATCH, *[FEATURE] * (rank - 2), CHANNEL]
    if rank == 2 and not floating:
        return [BATCH, TIME]
    if rank >= 2:
        return [BATCH, *[None] * (rank - 1)]
    return [None] * rank


def _follow_names(graph: ir.Graph) -> None:
    """Copy denotations from input dimensions to output dimensions of the same name that have none, in place."""
    known = {
        name: value.shape.get_denotation(axis)
        for value, axis, name in _dims(_inputs(graph))
        if name and value.shape is not None
    }
    for value, axis, name in list(_dims(list(graph.outputs))):
        denotation = known.get(name)
        if denotation and value.shape is not None and not value.shape.get_denotation(axis):
            _set(value, axis, denotation)


def _report(graph: ir.Graph, context: Context) -> None:
    """Report each free dimension of the inputs, and how a session can fix it (DP205, and fact ``free_dimensions``)."""
    places: dict[str, list[str]] = {}
    meanings: dict[str, str] = {}
    for value, axis, name in _dims(_inputs(graph)):
        if name and value.shape is not None:
            places.setdefault(name, []).append(f"{value.name}:{axis}")
            meanings.setdefault(name, value.shape.get_denotation(axis) or "")
    listed = []
    for name, where in places.items():
        meaning = meanings[name]
        shared = [n for n, m in meanings.items() if meaning and m == meaning and n != name]
        python, c = _calls(name, meaning)
        listed.append(FreeDimension(name, meaning, where, python, c))
        also = f"; by denotation it sets {', '.join(repr(n) for n in shared)} to the same size" if shared else ""
        text = f"dimension {name!r} ({', '.join(where)}) is free{also}"
        context.report("DP205", text, node=name, where=where, denotation=meaning, python=python, c=c)
    context.facts.free_dimensions = listed


def _calls(name: str, denotation: str) -> tuple[list[str], list[str]]:
    """Return the calls of ONNX Runtime that fix a free dimension, as source text: in Python, and in C."""

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    python = [f"options.add_free_dimension_override_by_name({quoted(name)}, size)"]
    c = [f"api->AddFreeDimensionOverrideByName(options, {quoted(name)}, size)"]
    if denotation:
        python.append(f"options.add_free_dimension_override_by_denotation({quoted(denotation)}, size)")
        c.append(f"api->AddFreeDimensionOverride(options, {quoted(denotation)}, size)")
    return python, c
