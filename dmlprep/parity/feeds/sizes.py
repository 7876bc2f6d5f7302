"""Choose sizes for the free dimensions of a model's inputs: sizes that are set, expressions of these, or defaults."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model import Model

Dim = int | str | None


@dataclass(frozen=True)
class Input:
    """A graph input that must be fed.

    Attributes:
        dtype: element type; ``None`` if the input is not a tensor or has no type.
        dims: for each axis its size, or the name of a free dimension, or ``None`` for a free one without a name.
            Instead of the tuple, ``None`` if the rank is not known.
        spelled: the name of each free dimension as it is in the file, even ``None`` and ``?``, which are not real
            names; empty for fixed sizes.
    """

    name: str
    value: ir.Value
    dtype: ir.DataType | None
    dims: tuple[Dim, ...] | None
    spelled: tuple[str, ...] = ()

    @property
    def numpy_type(self) -> np.dtype:
        """The element type as numpy's type; the input must be a tensor with a type."""
        assert self.dtype is not None
        return np.dtype(self.dtype.numpy())


def is_anonymous(name: str | None) -> bool:
    """Return True if a name does not identify a dimension, such as ``None`` and ``?``, which exporters use for many."""
    return name is None or name.strip() in ("", "None", "?", "-1", "unk__0")


def _dim(dim: int | ir.SymbolicDim) -> Dim:
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    return None if is_anonymous(dim.value) else str(dim.value)


def graph_inputs(model: Model) -> list[Input]:
    """Return the inputs of a model that must be fed, in order; initializers that are inputs too (IR 3) are left out."""
    inputs = []
    for value in model.ir.graph.inputs:
        if value.name in model.ir.graph.initializers:
            continue
        dtype = value.dtype if isinstance(value.type, ir.TensorType) else None
        dims = None if value.shape is None else tuple(_dim(d) for d in value.shape.dims)
        spelled = tuple("" if isinstance(d, int) else d.value or "" for d in value.shape.dims) if value.shape else ()
        inputs.append(Input(value.name or "", value, dtype, dims, spelled))
    return inputs


def free_dimensions(inputs: Sequence[Input]) -> set[str]:
    """Return all keys for which a size can be set: names of free dimensions, and ``input:axis`` for every axis.

    Names inside expressions (``past + seq``) are among them, and unreal names (``?``).
    """
    names: set[str] = set()
    for one in inputs:
        for axis, dim in enumerate(one.dims or ()):
            names.add(f"{one.name}:{axis}")
            if isinstance(dim, str):
                names.add(dim)
                names |= set(_names(dim))
        names |= {text for text in one.spelled if text and is_anonymous(text)}
    return names


def _spelled_out(inputs: Sequence[Input], known_sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes with those for unreal names (``None``, ``?``) added as ``input:axis``, for each axis so named.

    Sizes that are already set by ``input:axis`` do not change.
    """
    sizes = dict(known_sizes)
    for one in inputs:
        for axis, text in enumerate(one.spelled):
            if text in known_sizes and is_anonymous(text):
                sizes.setdefault(f"{one.name}:{axis}", known_sizes[text])
    return sizes


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


def _parse(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _names(text: str) -> list[str]:
    tree = _parse(text) if len(text) < 200 else None
    return [] if tree is None else [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]


def evaluate(text: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a dimension by its name or expression (``past + seq``, ``past_plus_seq``).

    ``sizes`` are known sizes by name; the result is ``None`` if a part of the expression is unknown, or the text is not
    an expression. A division rounds down.
    """
    if text in sizes:
        return sizes[text]
    if "_plus_" in text:
        first, _, second = text.partition("_plus_")
        a, b = _by_stem(first, sizes), _by_stem(second, sizes)
        return None if a is None or b is None else a + b
    if len(text) > 200:
        return None

    def walk(tree: ast.expr) -> int | None:
        if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
            return tree.value
        if isinstance(tree, ast.Name):
            return sizes.get(tree.id)
        if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
            a, b = walk(tree.left), walk(tree.right)
            if a is None or b is None or (b == 0 and not isinstance(tree.op, (ast.Add, ast.Sub, ast.Mult))):
                return None
            return _OPERATORS[type(tree.op)](a, b)
        return None

    tree = _parse(text)
    return None if tree is None else walk(tree)


def _by_stem(stem: str, sizes: Mapping[str, int]) -> int | None:
    if stem in sizes:
        return sizes[stem]
    close = {size for name, size in sizes.items() if name.startswith(stem)}
    return close.pop() if len(close) == 1 else None


_LENGTH, _LENGTH_NAMES = 8, r"seq|len|time|token|^s$|^t$"

_BY_NAME: tuple[tuple[str, int], ...] = (
    (r"batch|^n$|^b$|^bs$", 2),
    (r"past|cache|memory", 4),
    (r"sample|audio|wave", 1600),
    (r"frame", 32),
    (_LENGTH_NAMES, _LENGTH),
    (r"channel", 3),
    (r"num|box|point|quer|count", 4),
)


_SIGNAL = 512
"""Default length in samples of a signal, for small speech models (frames of 512 at 16 kHz; wav2vec2 needs 400)."""

_FRAMES = frozenset(("Conv", "DFT", "STFT"))
_RESHAPES = frozenset(("Cast", "Identity", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"))


def is_signal(one: Input) -> bool:
    """Return True if an input seems to be sound or a similar signal.

    It must be of a floating-point type and of shape [samples], [batch, samples], or with one more axis of size 1. And
    a convolution, a Fourier transform, or a Pad that mirrors the ends must read it.
    """
    dims = one.dims or ()
    if one.dtype is None or not one.dtype.is_floating_point() or not 1 <= len(dims) <= 3:
        return False
    if len(dims) == 3 and 1 not in dims[1:]:
        return False
    stack, visited = [one.value], set[ir.Value]()
    while stack:
        value = stack.pop()
        for node, position in value.uses() if value not in visited else ():
            if node.domain != "" or position != 0:
                continue
            mode = node.attributes.get("mode") if node.op_type == "Pad" else None
            if node.op_type in _FRAMES or (mode is not None and mode.value == "reflect"):
                return True
            if node.op_type in _RESHAPES:
                stack.extend(node.outputs)
        visited.add(value)
    return False


def batch_axis(one: Input) -> int:
    """Return the index of the batch axis: by name, or 1 for a recurrent state [layers, batch, hidden], otherwise 0."""
    dims = one.dims or ()
    for axis, dim in enumerate(dims):
        if isinstance(dim, str) and re.search(r"batch|^bs?$", dim.lower()):
            return axis
    return int(len(dims) == 3 and isinstance(dims[0], int) and isinstance(dims[2], int) and dims[1] is None)


def is_length(one: Input, axis: int, dim: Dim) -> bool:
    """Return True if a free dimension is an independent length: not a batch, channels, or a sum of other lengths."""
    batch = axis == batch_axis(one) and not (len(one.dims or ()) == 1 and is_signal(one))
    name = dim if isinstance(dim, str) else "_"
    return not (
        batch or "channel" in name.lower() or "_plus_" in name or not name.isidentifier() or _is_total(one, axis, dim)
    )


def batch_name(one: Input) -> str:
    """Return the name of the batch dimension of an input; empty if it has no name, or the name of a length."""
    dim = one.dims[batch_axis(one)] if one.dims else None
    is_batch = isinstance(dim, str) and ("batch" in dim.lower() or not re.search(_LENGTH_NAMES, dim.lower()))
    return dim if isinstance(dim, str) and is_batch else ""


def caches(one: Input) -> bool:
    """Return True if an input is the cache of a GroupQueryAttention, for which inputs must have no padded tokens."""
    return bool(_cache_sizes(one))


def _cache_sizes(one: Input) -> dict[int, int]:
    """Return sizes by axis for a cache input [batch, heads, past, head size] that a GroupQueryAttention reads.

    They follow from the node's attributes and its query; the past is 0. Empty for other inputs.
    """
    for node, position in one.value.uses() if len(one.dims or ()) == 4 else ():
        if (node.domain, node.op_type) != ("com.microsoft", "GroupQueryAttention") or position not in (3, 4):
            continue
        heads, own = (node.attributes.get(name) for name in ("num_heads", "kv_num_heads"))
        query = node.inputs[0].shape if node.inputs[0] is not None else None
        if heads is None or own is None or query is None or not isinstance(query[-1], int):
            continue
        packed = len(node.inputs) < 3 or node.inputs[1] is None
        count = heads.as_int() + (2 * own.as_int() if packed else 0)
        if count > 0 and query[-1] % count == 0:
            # With a filled cache, the CPU needs one token or a batch of one, and DirectML needs past and present in one
            # memory (DP649). Both compute the first tokens of a text.
            return {1: own.as_int(), 2: 0, 3: query[-1] // count}
    return {}


def _default(one: Input, axis: int, dim: Dim) -> int:
    dims = one.dims or ()
    if (size := _cache_sizes(one).get(axis)) is not None:
        return size
    name = dim.lower() if isinstance(dim, str) else ""
    for pattern, size in _BY_NAME:
        if name and re.search(pattern, name):
            return _SIGNAL if size == _LENGTH and axis == len(dims) - 1 and is_signal(one) else size
    if axis == len(dims) - 1 and is_signal(one):
        return _SIGNAL
    spatial = len(dims) >= 4 and axis >= 1 and dims[-1] not in (1, 3, 4)
    if re.search(r"height|width|^h$|^w$", name) or (not name and spatial and axis >= 2):
        channels = dims[1] if len(dims) > 1 else None
        # Latents (4 channels and more) are already smaller by a factor of 8.
        return 16 if isinstance(channels, int) and channels >= 4 else 64
    return 2 if axis == batch_axis(one) else 8


def resolve_shapes(inputs: Sequence[Input], known_sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return a shape for every input, with small default sizes for dimensions whose size is neither set nor follows.

    Args:
        known_sizes: sizes by dimension name (``batch``) or by input and axis (``pixel_values:0``), in elements; names
            that no input has are ignored.

    Returns:
        shapes by input name; a dimension name has the same size in all of them.
    """
    known_sizes = _spelled_out(inputs, known_sizes)
    sizes = dict(known_sizes)
    for one in inputs:
        for axis, dim in enumerate(one.dims or ()):
            key = f"{one.name}:{axis}"
            if key in known_sizes and isinstance(dim, str) and dim.isidentifier():
                sizes.setdefault(dim, known_sizes[key])
    # Compute expressions when their parts have sizes.
    late: list[tuple[Input, int, str]] = []
    for one in inputs:
        for axis, dim in enumerate(one.dims or ()):
            if not isinstance(dim, str) or evaluate(dim, sizes) is not None:
                continue
            if "_plus_" in dim or not dim.isidentifier() or _is_total(one, axis, dim):
                late.append((one, axis, dim))
            else:
                sizes[dim] = _default(one, axis, dim)
    for one, axis, dim in late:
        for name in _names(dim) if not dim.isidentifier() else ():
            sizes.setdefault(name, _default(one, axis, name))
        size = evaluate(dim, sizes)
        sizes[dim] = size if size is not None else _total(inputs, sizes) or _default(one, axis, dim)
    return {i.name: tuple(_size(inputs, i, axis, dim, sizes) for axis, dim in enumerate(i.dims or ())) for i in inputs}


def known_shape(inputs: Sequence[Input], one: Input, known_sizes: Mapping[str, int]) -> list[int | None]:
    """Return for each axis of an input its size, if it is fixed, set, or follows from set sizes; otherwise ``None``."""
    sizes = _spelled_out(inputs, known_sizes)
    known: list[int | None] = []
    for axis, dim in enumerate(one.dims or ()):
        known.append(sizes.get(f"{one.name}:{axis}", evaluate(dim, sizes) if isinstance(dim, str) else dim))
    return known


def _size(inputs: Sequence[Input], one: Input, axis: int, dim: Dim, sizes: Mapping[str, int]) -> int:
    if f"{one.name}:{axis}" in sizes:
        return sizes[f"{one.name}:{axis}"]
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        size = evaluate(dim, sizes)
        assert size is not None
        return max(size, 0)
    if _is_total(one, axis, dim):
        return _total(inputs, sizes) or _default(one, axis, dim)
    return _default(one, axis, dim)


def _is_total(one: Input, axis: int, dim: Dim) -> bool:
    """Return True if a dimension is the length of past and new tokens: axis 1 of an attention mask, or by its name."""
    named = isinstance(dim, str) and "total" in dim.lower()
    return named or ("attention_mask" in one.name.lower() and axis == 1 and not isinstance(dim, int))


def _total(inputs: Sequence[Input], sizes: Mapping[str, int]) -> int | None:
    """Return the number of new tokens plus that of tokens in the cache, which is 0 without a cache.

    ``None`` if the model has no input of tokens, or a number is unknown.
    """
    flat = (i for i in inputs if len(i.dims or ()) >= 2)
    tokens = next((i for i in flat if re.search(r"input_ids|tokens|inputs_embeds", i.name)), None)
    if tokens is None:
        return None
    own = _known(tokens, 1, sizes)
    past = next((i for i in inputs if _is_past(i)), None)
    before = 0 if past is None else _known(past, 2, sizes)
    return None if own is None or before is None else own + before


def _is_past(one: Input) -> bool:
    """Return True if an input is a cache of keys or values, [batch, heads, past, head size], by name or free sizes."""
    dims = one.dims or ()
    if len(dims) != 4 or one.dtype is None or not one.dtype.is_floating_point():
        return False
    free = tuple(not isinstance(dim, int) for dim in dims)
    return one.name.lower().startswith("past") or free[1:] == (False, True, False)


def _known(one: Input, axis: int, sizes: Mapping[str, int]) -> int | None:
    """Return the size of an axis if it is fixed, set, or follows from set sizes.

    Otherwise: the default for a dimension without a name, ``None`` for one with a name.
    """
    dim = (one.dims or ())[axis]
    if f"{one.name}:{axis}" in sizes:
        return sizes[f"{one.name}:{axis}"]
    if isinstance(dim, int):
        return dim
    return evaluate(dim, sizes) if isinstance(dim, str) else _default(one, axis, dim)
