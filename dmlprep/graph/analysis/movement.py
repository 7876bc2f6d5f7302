"""Numpy forms of the operators that move elements and compute nothing: Slice, Gather, Concat, Reshape, Expand ...

The arguments of each function are the values of the node's inputs (``None`` for an absent one), its attributes and its
opset. Each raises ``Uncertain`` for a form that it does not compute. An invalid node may also raise an error of
numpy; ``folding.evaluate`` catches both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dmlprep.portable.arrays import Array

Attributes = Mapping[str, Any]
"""Attributes by name: int, float, str, list of these, or numpy array for a tensor."""

Inputs = Sequence[Array | None]
Evaluator = Callable[[Inputs, Attributes, int], Sequence[Array] | Array | None]


class Uncertain(Exception):
    """Raised where ONNX does not define the result (division by zero), or dmlprep does not compute the form.

    Such a node is not folded.
    """


def required(value: Array | None) -> Array:
    """Return a required input; raise ``Uncertain`` if it is missing."""
    if value is None:
        raise Uncertain("a required input is missing")
    return value


def ints(inputs: Inputs, attributes: Attributes, index: int, name: str) -> list[int] | None:
    """Return an integer list that is an attribute in old opsets and an input in new ones; ``None`` without both."""
    if len(inputs) > index and inputs[index] is not None:
        return [int(v) for v in np.asarray(inputs[index]).reshape(-1)]
    value = attributes.get(name)
    return None if value is None else np.asarray(value, np.int64).reshape(-1).tolist()


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front; raise ``Uncertain`` if the rank has no such axis."""
    if not -rank <= axis < rank:
        raise Uncertain(f"axis {axis} of rank {rank}")
    return axis % rank


_WHOLE = (2**31 - 1, 2**63 - 1)
"""Ends that ONNX Runtime treats as "all elements", in both directions."""


def sliced(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Slice."""
    data = required(inputs[0])
    starts, ends = ints(inputs, attributes, 1, "starts"), ints(inputs, attributes, 2, "ends")
    if starts is None or ends is None:
        raise Uncertain("no bounds")
    axes = ints(inputs, attributes, 3, "axes") or list(range(len(starts)))
    steps = ints(inputs, {}, 4, "steps") or [1] * len(starts)
    index: list[slice] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis_of(axis, data.ndim)
        index[axis] = slice_of(start, end, step, data.shape[axis])
    return data[tuple(index)]


def slice_of(start: int, end: int, step: int, size: int) -> slice:
    """Convert ONNX's Slice of one axis to a Python slice.

    Raises:
        Uncertain: the step is zero, or ONNX Runtime selects other elements than ONNX defines.
    """
    if step == 0:
        raise Uncertain("a step of zero")
    if step < 0 and end in _WHOLE:
        raise Uncertain("backwards to the largest number")
    low, high = (0, size) if step > 0 else (0, size - 1)
    start = min(max(start + size if start < 0 else start, low), high)
    end = min(max(end + size if end < 0 else end, 0 if step > 0 else -1), size)
    return slice(start, None if end < 0 else end, step)


def gathered(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Gather."""
    data, indices = required(inputs[0]), required(inputs[1])
    axis = axis_of(int(attributes.get("axis", 0)), data.ndim)
    if indices.size and not (-data.shape[axis] <= indices.min() and indices.max() < data.shape[axis]):
        raise Uncertain("an index out of range")
    return np.take(data, indices, axis)


def joined(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Concat."""
    return np.concatenate([required(a) for a in inputs], int(attributes.get("axis", 1)))


def unsqueezed(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Unsqueeze."""
    data, axes = required(inputs[0]), ints(inputs, attributes, 1, "axes") or []
    return np.expand_dims(data, tuple(axes)) if axes else data


def squeezed(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Squeeze."""
    data, axes = required(inputs[0]), ints(inputs, attributes, 1, "axes")
    return np.squeeze(data) if axes is None else np.squeeze(data, tuple(axes))


def reshaped(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Reshape."""
    data, shape = required(inputs[0]), ints(inputs, attributes, 1, "shape") or []
    if not attributes.get("allowzero", 0):
        shape = [data.shape[i] if v == 0 else v for i, v in enumerate(shape)]
    return data.reshape(shape)


def flattened(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Flatten."""
    data = required(inputs[0])
    axis = int(attributes.get("axis", 1))
    axis = axis + data.ndim if axis < 0 else axis
    return data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))


def expanded(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Expand."""
    data = required(inputs[0])
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(int(v) for v in required(inputs[1]))))


def tiled(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Tile."""
    if version < 6:
        raise Uncertain("Tile of opset 1")
    return np.tile(required(inputs[0]), required(inputs[1]))


def parted(inputs: Inputs, attributes: Attributes, version: int) -> Sequence[Array] | None:
    """Evaluate Split."""
    data = required(inputs[0])
    axis = axis_of(int(attributes.get("axis", 0)), data.ndim)
    sizes = ints(inputs, attributes, 1, "split")
    if sizes is None:
        parts = int(attributes["\0outputs"])
        each = -(-data.shape[axis] // parts)
        sizes = [min(each, max(0, data.shape[axis] - each * i)) for i in range(parts)]
    if sum(sizes) != data.shape[axis]:
        raise Uncertain("sizes do not add up")
    return np.split(data, np.cumsum(sizes)[:-1], axis)


def nonzero(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate NonZero."""
    data = required(inputs[0])
    return np.stack(np.nonzero(data.reshape(1) if data.ndim == 0 else data)).astype(np.int64)


def scattered(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate ScatterND."""
    if attributes.get("reduction", "none") not in ("none", b"none"):
        raise Uncertain("a reduction")
    data, indices, updates = required(inputs[0]).copy(), required(inputs[1]), required(inputs[2])
    last = indices.shape[-1]
    if last > data.ndim or updates.shape != indices.shape[:-1] + data.shape[last:]:
        raise Uncertain("shapes of ScatterND")
    rows = indices.reshape(-1, last)
    for axis in range(last):
        if rows.size and not (-data.shape[axis] <= rows[:, axis].min() and rows[:, axis].max() < data.shape[axis]):
            raise Uncertain("an index out of range")
    if len(np.unique(np.mod(rows, data.shape[:last]), axis=0)) != len(rows):
        raise Uncertain("a duplicate index")
    data[tuple(rows.T)] = updates.reshape((len(rows), *data.shape[last:]))
    return data


def gathered_elements(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate GatherElements."""
    data, indices = required(inputs[0]), required(inputs[1])
    axis = axis_of(int(attributes.get("axis", 0)), data.ndim)
    # numpy broadcasts; ONNX reads only the part of the data that the indices cover on the other axes.
    covered = tuple(slice(None if i == axis else size) for i, size in enumerate(indices.shape))
    return np.take_along_axis(data[covered], indices, axis)


def gathered_slices(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Compute GatherND without ``batch_dims``."""
    data, indices = required(inputs[0]), required(inputs[1])
    if attributes.get("batch_dims", 0):
        raise Uncertain("batches")
    ends = data.shape[: indices.shape[-1]]
    if len(ends) != indices.shape[-1] or not ends:
        raise Uncertain("indices for more dimensions than the data has")
    columns = tuple(np.moveaxis(indices, -1, 0))
    if indices.size and any(not -end <= i.min() <= i.max() < end for end, i in zip(ends, columns, strict=True)):
        raise Uncertain("an index out of range")
    return np.asarray(data[columns])


def padded(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Pad with a constant."""
    data, pads = required(inputs[0]), ints(inputs, attributes, 1, "pads")
    value = inputs[2] if len(inputs) > 2 else None
    if version < 11 or pads is None or len(inputs) > 3 or attributes.get("mode", "constant") != "constant":
        raise Uncertain("another padding mode")
    if min(pads, default=0) < 0 or len(pads) != 2 * data.ndim:
        raise Uncertain("a negative pad")
    fill = 0 if value is None else value.reshape(-1)[0]
    return np.pad(data, list(zip(pads[: data.ndim], pads[data.ndim :], strict=True)), constant_values=fill)


def triangle(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    """Evaluate Trilu."""
    k = inputs[1] if len(inputs) > 1 else None
    offset = 0 if k is None else int(k.reshape(-1)[0])
    return (np.triu if attributes.get("upper", 1) else np.tril)(required(inputs[0]), offset)
