"""Guess the role of an input (token ids, a mask, positions, an image) from its name, its type and its readers."""

from __future__ import annotations

import re
from typing import Literal

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.constants import held_tensor
from dmlprep.parity.feeds.sizes import Input

Role = Literal[
    "ids", "mask", "positions", "types", "timestep", "image", "sizes", "factor", "count", "number", "cache", "flag",
    "plain",
]  # fmt: skip

_PASS_ON = frozenset(
    {"Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile",
     "Transpose", "Unsqueeze", "Where"}
)  # fmt: skip
"""Operators that pass the values of their first input on (Concat and Where: of any), so that indices stay indices."""

_INDEXES = frozenset(("Gather", "GatherBlockQuantized", "GatherElements", "ScatterElements"))


def index_limit(model: Model, value: ir.Value) -> int | None:
    """Return the number of rows of the smallest table that ``value`` indexes; ``None`` if it indexes no known table.

    Readers in subgraphs and functions count too.
    """
    limits: list[int] = []
    visited: set[ir.Value] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        if current in visited:
            continue
        visited.add(current)
        for node, position in current.uses():
            if (limit := _rows(node, position)) is not None:
                limits.append(limit)
            first = position == 0 or node.op_type in ("Concat", "Where")
            if first and node.domain == "" and node.op_type in _PASS_ON:
                stack.extend(node.outputs)
            function = model.ir.functions.get(node.op_identifier())
            if function is not None and position < len(function.inputs):
                stack.append(function.inputs[position])
    return min(limits, default=None)


def _rows(node: ir.Node, position: int) -> int | None:
    if node.op_type in _INDEXES and position == 1:
        # Both Gathers' default is axis 0 (ONNX operators; contrib operators of ONNX Runtime).
        axis = node.attributes.get_int("axis", 0)
        return _size(node.inputs[0], axis)
    if node.domain == "" and node.op_type in ("GatherND", "ScatterND") and position == 1:
        indices = node.inputs[1]
        depth = indices.shape[-1] if indices is not None and indices.shape else None
        batch = node.attributes.get_int("batch_dims", 0)
        sizes = [_size(node.inputs[0], batch + axis) for axis in range(depth)] if isinstance(depth, int) else []
        return min((size for size in sizes if size is not None), default=None)
    if node.op_type == "EmbedLayerNormalization" and position in (0, 1):
        return _size(node.inputs[2 if position == 0 else 4], 0)
    return None


def _size(table: ir.Value | None, axis: int) -> int | None:
    """Return the size of a table along ``axis``; ``None`` if it is not known without reading values."""
    if table is None or table.shape is None:
        producer = table.producer() if table is not None else None
        if producer is not None and producer.op_type == "Constant":
            values = held_tensor(table)
            sizes = values.shape.numpy() if values is not None else ()
            return sizes[axis] if -len(sizes) <= axis < len(sizes) else None
        if producer is not None and producer.op_type in ("DequantizeLinear", "Cast", "Identity") and producer.inputs:
            return _size(producer.inputs[0], axis)
        return None
    if not -len(table.shape) <= axis < len(table.shape):
        return None
    size = table.shape[axis]
    return size if isinstance(size, int) and size > 0 else None


def role(one: Input, limit: int | None) -> Role:
    """Return the role of an input, guessed from its name, type and shape; ``plain`` if no other role fits.

    ``limit`` is the result of ``index_limit`` for it.
    """
    name = one.name.lower()
    rank = len(one.dims or ())
    integer = one.dtype is not None and one.dtype.is_integer()
    if "mask" in name:
        return "mask"
    if one.dtype == ir.DataType.BOOL:
        return "flag"
    if re.search(r"past|cache|present", name) and not integer:
        return "cache"
    if re.search(r"time_?step|sigma|^t$", name) and rank <= 1:
        return "timestep"
    if re.search(r"im_shape|orig.*size|image_?shape|img_?size|image_?size", name):
        return "sizes"
    if re.search(r"scale_factor|\bscale$", name):
        return "factor"
    if integer:
        if "position" in name:
            return "positions"
        if re.search(r"token_type|segment|type_ids", name):
            return "types"
        if limit is not None or re.search(r"ids$|tokens?$", name):
            return "ids"
        if rank == 4:
            return "image"
        return "count" if rank <= 1 else "number"
    if rank == 4 and one.dims is not None and (one.dims[1] in (1, 3) or one.dims[3] in (1, 3)):
        return "image"
    return "plain"
