"""Values that were pinned (fixed) for inputs: as arrays that fit the inputs, and as a note in the prepared model.

A later comparison reads the note from the model's metadata, to feed the original the same values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from numpy.typing import DTypeLike

from dmlprep.core.errors import UsageError
from dmlprep.core.text.shell import command_line
from dmlprep.portable.arrays import Array

Value: TypeAlias = bool | int | float | str | list[Any]
"""A number, a truth value, a text, or nested lists of them."""

_KEY = "dmlprep.pinned"
_MOST = 4096
"""Most elements of a pinned value: recipes and metadata contain it. Weights belong in initializers."""


def plain_array(name: str, value: Value, dtype: DTypeLike | None = None) -> Array:
    """Return the pinned value of the input ``name`` as an array.

    Raises:
        UsageError: DP208, its rows have different lengths.
    """
    try:
        return np.asarray(value, dtype)
    except ValueError as error:
        raise _wrong(name, "its rows have different lengths") from error


def pinned_array(value: ir.Value, pin: Value) -> Array:
    """Return the value ``pin`` as an array in the type and shape of an input.

    One number fills a shape whose sizes are all fixed. Other values must have the shape of the input,
    where a free size accepts any number. At most 4096 elements are allowed.

    Raises:
        UsageError: DP208, the value does not fit the input.
    """
    name = value.name or ""
    if value.dtype is None or not isinstance(value.type, ir.TensorType):
        raise _wrong(name, f"the input is not a tensor of a known type ({value.type or 'it has no type'})", _UNFIT)
    array = plain_array(name, pin, object if value.dtype == ir.DataType.STRING else None)
    sizes = None if value.shape is None else [d if isinstance(d, int) and d >= 0 else None for d in value.shape]
    fixed = [s for s in sizes or () if s is not None]
    if not array.ndim and sizes and len(fixed) < len(sizes):
        raise _wrong(name, "one number fills only an input of fixed sizes: pin the sizes too, or pass a list")
    if max(array.size, 0 if array.ndim else math.prod(fixed)) > _MOST:
        raise _wrong(name, f"it is too large: at most {_MOST} elements", _UNFIT)
    if not array.ndim and sizes:
        array = np.full(fixed, pin, array.dtype)
    sizes = list(array.shape) if sizes is None else sizes
    if len(sizes) != array.ndim or any(s not in (None, n) for s, n in zip(sizes, array.shape, strict=True)):
        own = ["?" if s is None else s for s in sizes]
        raise _wrong(name, f"its shape is {list(array.shape)}, the input's {own}")
    return _typed(name, array, value.dtype)


def _typed(name: str, array: Array, dtype: ir.DataType) -> Array:
    """Return an array converted to the element type of the input ``name``.

    Raises:
        UsageError: DP208, the values are of another kind, or outside the range of the type.
    """
    if dtype == ir.DataType.STRING:
        if not all(isinstance(element, str) for element in array.reshape(-1)):
            raise _wrong(name, "the input is text")
        return array
    kinds = "b" if dtype == ir.DataType.BOOL else "iu" if dtype.is_integer() else "iuf"
    if not (dtype.is_integer() or dtype.is_floating_point() or kinds == "b") or dtype.bitwidth < 8:
        raise _wrong(name, f"values of type {dtype.name} cannot be pinned", _UNFIT)
    if array.size and array.dtype.kind not in kinds:
        form = {"b": "true or false", "iu": "whole numbers", "iuf": "numbers"}[kinds]
        raise _wrong(name, f"the input is {dtype.name}: pass {form}")
    with np.errstate(over="ignore"):
        typed = array.astype(dtype.numpy())
    same = np.isfinite(typed.astype(float)) == np.isfinite(array.astype(float)) if "f" in kinds else typed == array
    if not np.all(same):
        raise _wrong(name, f"it is outside the range of {dtype.name}")
    return typed


_UNFIT = "do not pin the value of this input"


def _wrong(name: str, why: str, fix: str = "") -> UsageError:
    example = f"{command_line('--pin', f'{name}:=16000')}, {command_line('--pin', f'{name}:=[1,2]')}"
    fix = fix or f"pass a value of the input's type and shape: {example}"
    return UsageError(f"the value of input {name!r} does not fit: {why}", where=f"pin {name}", code="DP208", fix=fix)


def short_value(value: Value) -> str:
    """Return a value as text for a message; a long value only as its shape."""
    text = str(value)
    return text if len(text) <= 60 else f"a value of shape {list(np.shape(value))}"


def note_values(model: ir.Model, arrays: Mapping[str, Array]) -> None:
    """Write pinned values (input name -> array) into the model's metadata, in addition to earlier ones."""
    noted = {**pinned_values(model), **{name: array.tolist() for name, array in arrays.items()}}
    if noted:
        model.metadata_props[_KEY] = json.dumps(noted, sort_keys=True)


def pinned_values(model: ir.Model, among: Sequence[ir.Value] | None = None) -> dict[str, Value]:
    """Return input name -> pinned value, from the model's metadata; with ``among``, only for these inputs.

    Invalid values are left out; empty if there is no note, or if the whole note is invalid.
    """
    try:
        noted = json.loads(model.metadata_props.get(_KEY, "{}"))
    except (ValueError, RecursionError):
        return {}
    names = None if among is None else {v.name for v in among}
    held = noted.items() if isinstance(noted, dict) else ()
    return {n: v for n, v in held if (names is None or n in names) and _is_value(v)}


def _is_value(noted: object) -> bool:
    try:
        return np.asarray(noted).dtype.kind in "biufU"
    except ValueError:  # rows of different lengths
        return False
