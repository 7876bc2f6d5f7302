"""Valid values for inputs that accept few: RoiAlign's boxes, a Reshape's shape, a number that the graph compares."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model.constants import held_tensor
from dmlprep.parity.feeds.sizes import Input

Functions = Mapping[ir.OperatorIdentifier, ir.Function]

_AS_IT_IS = frozenset(("Cast", "Identity"))
_ONE_NUMBER = _AS_IT_IS | {"Expand", "Flatten", "Gather", "Reshape", "Slice", "Squeeze", "Unsqueeze"}
_COMPARES = frozenset(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"))


def _readers(
    value: ir.Value, through: frozenset[str] = _AS_IT_IS, functions: Functions | None = None
) -> Iterator[tuple[ir.Node, int]]:
    """Yield the nodes that read a value, each with the index of its input.

    Nodes in subgraphs and in ``functions`` count, and those that read it through operators in ``through``.
    """
    stack, visited = [value], set()
    while stack:
        current = stack.pop(0)
        if current in visited:
            continue
        visited.add(current)
        for node, position in current.uses():
            yield node, position
            if node.domain == "" and node.op_type in through and position == 0:
                stack.extend(node.outputs)
            function = functions.get(node.op_identifier()) if functions else None
            if function is not None and position < len(function.inputs):
                stack.append(function.inputs[position])


def _reader(one: Input, operator: str, position: int) -> ir.Node | None:
    """Return the first node of a standard operator that reads a graph input as its input number ``position``.

    ``None`` if there is no such node. Positions count from 0.
    """
    wanted = ("", operator, position)
    return next((node for node, at in _readers(one.value) if (node.domain, node.op_type, at) == wanted), None)


def compared_with(value: ir.Value, functions: Functions) -> int | float | None:
    """Return the constant with which a graph compares ``value``, a single number (``sr == 16000``); otherwise ``None``.

    If it compares with several constants, the first is returned. Such a graph mostly selects a branch by the number,
    and the sizes of the other inputs fit one branch only.
    """
    for node, position in _readers(value, _ONE_NUMBER, functions):
        if node.domain != "" or node.op_type not in _COMPARES:
            continue
        constant = held_tensor(node.inputs[1 - position])
        if constant is not None and constant.size == 1:
            number = constant.numpy().reshape(-1)[0].item()
            if isinstance(number, int | float) and math.isfinite(number):
                return number
    return None


def batch_count(one: Input, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Return the number of images that valid indices can name, for an input that is RoiAlign's ``batch_indices``.

    Args:
        shapes: shapes of all inputs. If the batch of RoiAlign's features is not fixed, that of the first input with
            four dimensions counts.

    Returns:
        the number, 1 if it is not known; ``None`` if the input is not ``batch_indices`` of a RoiAlign.
    """
    node = _reader(one, "RoiAlign", 2)
    if node is None:
        return None
    features = node.inputs[0]
    batch = features.shape[0] if features is not None and features.shape else None
    images = next((shape[0] for shape in shapes.values() if len(shape) == 4), 1)
    return max(batch if isinstance(batch, int) else images, 1)


def region_extent(one: Input, shapes: Mapping[str, tuple[int, ...]]) -> tuple[float, float] | None:
    """Return the width and height within which boxes are valid, for an input that is RoiAlign's ``rois`` [num_rois, 4].

    ``None`` for other inputs. ``shapes`` are the shapes of all inputs, for features whose size is not fixed.
    """
    node = _reader(one, "RoiAlign", 1)
    if node is None:
        return None
    features = node.inputs[0]
    sizes = [*(features.shape if features is not None and features.shape is not None else ()), *[None] * 4][2:4]
    images = next((shape[2:] for shape in shapes.values() if len(shape) == 4), (16, 16))
    height, width = (size if isinstance(size, int) else image for size, image in zip(sizes, images, strict=True))
    scale = node.attributes.get_float("spatial_scale", 1.0) or 1.0
    return width / scale, height / scale


def reshape_target(one: Input, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return a valid value for an input that is the target shape of a Reshape; ``None`` for other inputs.

    Sizes that the model declares for the result stay. The last of the others is inferred (-1). The rest are copied from
    the data (0) if it has such an axis, and 1 otherwise.

    Args:
        shape: shape of the input, [rank of the result].
    """
    node = _reader(one, "Reshape", 1)
    if node is None or len(shape) != 1:
        return None
    data, result = node.inputs[0], node.outputs[0].shape
    allows_zero = "allowzero" in node.attributes and node.attributes["allowzero"].as_int() != 0
    copied = () if data is None or data.shape is None or allows_zero else data.shape
    declared = [*(result if result is not None and len(result) == shape[0] else [None] * shape[0])]
    target = [size if isinstance(size, int) else int(axis >= len(copied)) for axis, size in enumerate(declared)]
    if free := [axis for axis, size in enumerate(declared) if not isinstance(size, int)]:
        # The last one: the axes before it are then those of the data.
        target[free[-1]] = -1
    return np.array(target, np.int64)
